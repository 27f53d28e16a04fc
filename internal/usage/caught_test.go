// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

func TestWhatWasSeenAndDoneIsRecordedInWords(t *testing.T) {
	text, err := os.ReadFile("../share/judge.go")
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(`Verdict += "(.+)"`).FindAllStringSubmatch(string(text), -1)
	for _, v := range all {
		if share.Verdict(v[1]).Number() == 0 {
			t.Errorf("%q has no number", v[1])
		}
	}
	words := map[string]bool{}
	number := uint32(1)
	for ; share.VerdictOf(number) != ""; number++ {
		c := CaughtOf(ledger.TimeDevice{Verdict: number})
		if got := share.Verdict(c.Seen).Number(); got != number {
			t.Errorf("verdict %d is recorded as %q, which is %d", number, c.Seen, got)
		}
		words[c.Words()] = true
	}
	unknown := CaughtOf(ledger.TimeDevice{Verdict: number})
	words[unknown.Words()] = true
	if len(words) != int(number) || len(words) != len(all)+1 || unknown.Seen == "" {
		t.Errorf("not each verdict has words of its own: %v", words)
	}
	if got := CaughtOf(ledger.TimeDevice{BusyNs: 1}).Words(); got != "" {
		t.Errorf("of nothing it says %q", got)
	}
	rec := Record{Devices: []Device{{}}}
	rec.Complete(timeline.History{}, Totals{Devices: make([]ledger.DeviceUsage, 1), Counted: []ledger.TimeDevice{{Frozen: 1, Killed: 3, Verdict: 1}}}, 0)
	if got := rec.Devices[0].Words(); !strings.Contains(got, "a step was frozen once, for 10 s each time, a step was killed 3 times;") {
		t.Errorf("it says %q", got)
	}
}

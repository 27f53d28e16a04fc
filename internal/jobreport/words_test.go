// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

// nonsense is what a time that nobody has filled in looks like, a figure that is none, or a format without its value.
var nonsense = regexp.MustCompile(`10675[12]|0001-01-01|1969-|1970-|[0-9]{5}-[0-9][0-9]:|NaN|[0-9]{4} %|vgpu-mem=0|[+-]Inf|%!|(^|[ (])-[0-9]`)

// Whatever is missing of a run, no nonsense is told of it.
func TestNothingMissingMakesNonsense(t *testing.T) {
	now := time.Date(2026, 3, 4, 15, 6, 0, 0, time.UTC)
	for bits := range 1 << 9 {
		has := func(bit int) bool { return bits&(1<<bit) != 0 }
		run := Run{State: "RUNNING"}
		if has(0) {
			run.Submitted = now.Add(-3 * time.Hour)
		}
		if has(1) {
			run.Start = now.Add(-2 * time.Hour)
		}
		if has(2) {
			run.End, run.State = now.Add(-time.Hour), "COMPLETED"
		}
		s := Slice{Node: "n1", Device: "GPU-a"}
		if has(3) {
			s.MemMiB, s.SMPercent = 3000, 30
		}
		if has(4) {
			s.Figures = used(9000, 3, new(1e6))
		}
		if has(5) {
			s.Timeline = []timeline.Point{{AtUnixS: now.Add(-90 * time.Minute).Unix(), UsedMiB: 5000, BusyMs: 1e12}, {AtUnixS: -5}, {}}
		}
		if has(6) {
			s.Earlier = []device.Limit{{}, {UntilUnixS: now.Add(-95 * time.Minute).Unix(), MemMiB: 8000}, {UntilUnixS: now.Add(time.Hour).Unix()}}
		}
		if has(7) {
			run.Refusals = map[string]string{"n2": "no room"}
		}
		if has(8) {
			run.Slices = []Slice{s}
		}
		r := Report{JobID: "7", Runs: []Run{run}}
		r.Complete(now, time.UTC)
		var out strings.Builder
		r.Text(&out, Look{Now: now, Loc: time.UTC, Columns: 80, Strips: true})
		if found := nonsense.FindString(out.String()); found != "" {
			t.Fatalf("%09b: %q in\n%s", bits, found, out.String())
		}
	}
}

// Between two looks of vgpud lie milliseconds: that is nothing to say.
func TestTimeThatRoundsToNoneIsNotSaid(t *testing.T) {
	var s Slice
	s.GPUSeconds, s.SharePercent, s.UnknownSeconds = new(2.0), new(1.0), 0.04
	if got := s.timeWords(); strings.Contains(got, "nobody") {
		t.Errorf("%q", got)
	}
	s.UnknownSeconds = 0.06
	if got := s.timeWords(); !strings.HasSuffix(got, "; 0.1 s of the time not counted") {
		t.Errorf("%q", got)
	}
}

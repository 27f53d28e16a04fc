// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

func watched() nodeStatus {
	used := int64(500)
	return nodeStatus{Node: "n1",
		GPUs: []gpuStatus{
			{GPU: device.GPU{UUID: "GPU-a", Type: "h200", MemMiB: 1000}, GrantedMiB: 750, State: "ok"},
			{GPU: device.GPU{UUID: "GPU-b", Index: 1, Type: "h200", MemMiB: 1000}, State: "lost"},
		},
		Slices: []sliceStatus{
			{Job: 12, User: "ann", Device: "GPU-a", MemMiB: 500, UsedMiB: &used},
			{Job: 13, User: "bob", Device: "GPU-a", MemMiB: 250},
		}}
}

func TestLanesAreAsWideAsTheTerminal(t *testing.T) {
	status := watched()
	got := lane(status.GPUs[0], slicesOn(status, status.GPUs[0]), 80)
	if want := "GPU 0  h200     [12 ##############|???????|          ]"; !strings.HasPrefix(got, want[:20]) || len(got) != 80 {
		t.Errorf("%d columns: %s", len(got), got)
	}
	if !strings.Contains(got, "[12 ###") || !strings.Contains(got, "???|") || !strings.HasSuffix(got, "750 of 1000 MiB ok") {
		t.Errorf("the lane is %s", got)
	}
	for _, width := range []int{1, 10, 40, 79, 500} {
		for line := range strings.Lines(frame(status, width, &bytes.Buffer{})) {
			if columns := len([]rune(strings.TrimSuffix(line, "\n"))); columns > width && !strings.HasPrefix(line, "n1:") {
				t.Errorf("%d columns of %d: %s", columns, width, line)
			}
		}
	}
}

// More slices than a lane has room for are no reason to end.
func TestManySlicesOnANarrowTerminal(t *testing.T) {
	status := watched()
	for range 300 {
		status.Slices = append(status.Slices, status.Slices[0])
	}
	if got := lane(status.GPUs[0], status.Slices, 60); len(got) != 60 {
		t.Errorf("%d columns: %s", len(got), got)
	}
}

func TestOnlyLinesThatChangedAreDrawn(t *testing.T) {
	var out bytes.Buffer
	redraw(&out, []string{"one", "two", "three", "four"}, []string{"one", "2", "three"})
	if want := "\x1b[2;1H2\x1b[K\x1b[4;1H\x1b[J"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	redraw(&out, []string{"one"}, []string{"one"})
	if out.Len() > 0 {
		t.Errorf("%q where nothing has changed", out.String())
	}
}

func TestLinesAreAppendedOfWhatHasChanged(t *testing.T) {
	var out bytes.Buffer
	a := &appender{out: &out, said: map[string]string{}}
	status, now := watched(), time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for range 2 {
		if err := a.show(status, now); err != nil {
			t.Fatal(err)
		}
	}
	status.GPUs[1].State = "ok"
	if err := a.show(status, now); err != nil {
		t.Fatal(err)
	}
	want := "2026-01-02T03:04:05Z n1 GPU 0 h200: 750 of 1000 MiB granted, ok; job 12 ann 500 of 500 MiB, no cap; job 13 bob - of 250 MiB, no cap\n" +
		"2026-01-02T03:04:05Z n1 GPU 1 h200: 0 of 1000 MiB granted, lost\n2026-01-02T03:04:05Z n1 GPU 1 h200: 0 of 1000 MiB granted, ok\n"
	if out.String() != want {
		t.Errorf("%s, want %s", out.String(), want)
	}
}

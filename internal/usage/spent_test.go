// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

func TestARecordHasItsJobsUseOverTime(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	begin := g.Since.Unix()
	for i := range int64(600) { // more than a file holds without folding
		file, err := timeline.Open(dir.Timeline(g.Job), TimelineRun(g), uint32(os.Getuid()))
		if err != nil {
			t.Fatal(err)
		}
		look := timeline.Look{AtUnixS: begin + 10*i, Slices: []timeline.Sample{{UsedMiB: 10, BusyMs: new(7 * i), LongestIdleS: 50}, {BusyMs: new(3 * i)}}}
		if err := file.Add(look); err != nil {
			t.Fatal(err)
		}
	}
	history, err := timeline.Read(dir.Timeline(g.Job), TimelineRun(g))
	if err != nil {
		t.Fatal(err)
	}
	used := Totals{Devices: make([]ledger.DeviceUsage, 2), Counted: []ledger.TimeDevice{{BusyNs: 4200e6, LookedNs: 1}, {BusyNs: 1797e6, LookedNs: 1}}}
	for after, want := range map[time.Duration]int64{0: 0, 50 * time.Second: 50, time.Minute: 0} {
		rec := Record{End: time.Unix(begin+6000, 0), Devices: []Device{{SMPercent: 30}, {}}}
		rec.Complete(history, used, after)
		if rec.Devices[0].IdleSeconds != want || rec.Devices[1].IdleSeconds != 0 {
			t.Errorf("idle after %s: noted are %d and %d s, want %d", after, rec.Devices[0].IdleSeconds, rec.Devices[1].IdleSeconds, want)
		}
		for i, want := range []int64{4200, 1797} {
			d := rec.Devices[i]
			var busy int64
			for _, p := range d.Timeline {
				busy += p.BusyMs
			}
			if n := len(d.Timeline); n < 100 || n > timeline.MaxRecorded || d.Timeline[n-1] != (timeline.Point{AtUnixS: begin + 6000, UsedMiB: int64(10 - 10*i), BusyMs: d.Timeline[n-1].BusyMs}) ||
				busy != want || *d.GPUSeconds != float64(want)/1e3 {
				t.Errorf("slice %d has %d points, %d ms in all, and %g s; the last is %+v", i, n, busy, *d.GPUSeconds, d.Timeline[n-1])
			}
		}
	}
	// A run that was over before the first look has one interval, with its peak; one that was missed for longer has none.
	used.Devices[0].PeakBytes = 900 << 20
	for length, want := range map[int64][]timeline.Point{8: {{AtUnixS: begin + 8, UsedMiB: 900, BusyMs: 4200}}, 21: {}} {
		rec := Record{Start: time.Unix(begin, 0), End: time.Unix(begin+length, 0), Devices: []Device{{}, {}}}
		rec.Complete(timeline.History{}, used, 0)
		if got := rec.Devices[0].Timeline; !slices.Equal(got, want) {
			t.Errorf("a run of %d s: %+v, want %+v", length, got, want)
		}
	}
	rec := Record{End: time.Unix(begin, 0), Devices: []Device{{SMPercent: 30}, {}}}
	rec.Complete(timeline.History{}, used, time.Minute)
	if len(rec.Devices[0].Timeline) != 0 || *rec.Devices[0].GPUSeconds != 4.2 {
		t.Errorf("where nobody looked: %+v", rec.Devices)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

func TestHowGPUTimeIsKnown(t *testing.T) {
	some, none := int64(2500), int64(0)
	for name, c := range map[string]struct {
		percent int
		busyMs  uint64
		looked  timeline.Sample
		want    float64
		source  Source
	}{
		"metered":                             {30, 1500, timeline.Sample{}, 1.5, Metered},
		"metered, and none":                   {30, 0, timeline.Sample{}, 0, Metered},
		"metered, and wiped since":            {30, 10, timeline.Sample{MeteredMs: 1500}, 1.5, Metered},
		"nobody looks":                        {0, 0, timeline.Sample{}, 0, ""},
		"nobody looks, with all of it":        {100, 0, timeline.Sample{}, 0, ""},
		"sampled":                             {0, 0, timeline.Sample{SampledMs: &some}, 2.5, Sampled},
		"sampled, and none":                   {0, 0, timeline.Sample{SampledMs: &none}, 0, Sampled},
		"sampled, and metered for neighbours": {0, 1500, timeline.Sample{MeteredMs: 1400, SampledMs: &some}, 4, Sampled},
		"sampled until it had a share":        {30, 1500, timeline.Sample{SampledMs: &some}, 4, Sampled},
	} {
		got, source := Spent(c.percent, Totals{Devices: []ledger.DeviceUsage{{BusyNs: c.busyMs * 1e6}}}.Latest(0, c.looked))
		if got.GPUSeconds != c.want || source != c.source {
			t.Errorf("%s: %.3f s %q, want %.3f s %q", name, got.GPUSeconds, source, c.want, c.source)
		}
	}
	for _, d := range []Device{{SMPercent: 30}, {Time: Time{GPUSeconds: 1}}} { // as earlier releases wrote them
		if d.Source() != Metered {
			t.Errorf("%+v is %q", d, d.Source())
		}
	}
	if d := (Device{}); d.Source() != "" {
		t.Errorf("what an earlier release did not know is %q", d.Source())
	}
}

func TestARecordHasItsJobsUseOverTime(t *testing.T) {
	g := twoSlices()
	g.Slices[1].SMPercent = 0
	dir := jobFolder(t, g)
	begin := g.Since.Unix()
	for i := range int64(600) { // more than a file holds without folding
		file, err := timeline.Open(dir.Timeline(g.Job), TimelineRun(g), uint32(os.Getgid()))
		if err != nil {
			t.Fatal(err)
		}
		sampled := 3 * i
		look := timeline.Look{AtUnixS: begin + 10*i, Slices: []timeline.Sample{{MeteredMs: 7 * i, WaitedMs: i, LongestIdleS: 50}, {SampledMs: &sampled}}}
		if err := file.Add(look); err != nil {
			t.Fatal(err)
		}
	}
	history, err := timeline.Read(dir.Timeline(g.Job), TimelineRun(g))
	if err != nil {
		t.Fatal(err)
	}
	used := []ledger.DeviceUsage{{BusyNs: 4200e6, WaitedNs: 600e6}, {}}
	for after, want := range map[time.Duration]int64{0: 0, 50 * time.Second: 50, time.Minute: 0} {
		rec := Record{End: time.Unix(begin+6000, 0), Devices: []Device{{SMPercent: 30}, {}}}
		rec.Complete(history, Totals{Devices: used}, after)
		if rec.Devices[0].IdleSeconds != want || rec.Devices[1].IdleSeconds != 0 {
			t.Errorf("idle after %s: noted are %d and %d s, want %d", after, rec.Devices[0].IdleSeconds, rec.Devices[1].IdleSeconds, want)
		}
		for i, want := range []Time{{GPUSeconds: 4.2, WaitedSeconds: 0.6}, {GPUSeconds: 1.797}} {
			d := rec.Devices[i]
			var busy, waited int64
			for _, p := range d.Timeline {
				busy, waited = busy+p.BusyMs, waited+p.WaitedMs
			}
			sum := Time{GPUSeconds: float64(busy) / 1e3, WaitedSeconds: float64(waited) / 1e3}
			if n := len(d.Timeline); n < 100 || n > timeline.MaxRecorded || d.Timeline[n-1].AtUnixS != begin+6000 || !cmp.Equal(sum, want) || !cmp.Equal(d.Time, want) {
				t.Errorf("slice %d has %d points, %+v in all, and %+v", i, n, sum, d.Time)
			}
		}
		if rec.Devices[0].GPUTimeSource != Metered || rec.Devices[1].GPUTimeSource != Sampled {
			t.Errorf("it is %s and %s", rec.Devices[0].GPUTimeSource, rec.Devices[1].GPUTimeSource)
		}
	}
	rec := Record{End: time.Unix(begin, 0), Devices: []Device{{SMPercent: 30}, {}}}
	rec.Complete(timeline.History{}, Totals{Devices: used}, time.Minute)
	if len(rec.Devices[0].Timeline) != 0 || rec.Devices[0].GPUSeconds != 4.2 || rec.Devices[1].GPUTimeSource != "" {
		t.Errorf("where nobody looked: %+v", rec.Devices)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package jobreport

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// slice is one of 8 GiB and 30 percent that did what it was granted, for two hours.
func slice(change func(*Slice)) Run {
	s := Slice{Node: "n1", Device: "GPU-aaaa", MemMiB: 8192, SMPercent: 30, Figures: used(7000, 0, new(2000.0))}
	change(&s)
	return Run{State: "COMPLETED", Start: start, End: now, Slices: []Slice{s}}
}

func steady(minutes int, busyMs int64) []timeline.Point {
	return line(minutes, func(int) (int64, int64) { return 7000, busyMs })
}

// after is of a job that hardly works for some minutes, and then at its cap.
func after(minutes int) []timeline.Point {
	return line(120, func(minute int) (int64, int64) {
		if minute < minutes {
			return 7000, 100
		}
		return 7000, 17900
	})
}

// Each rule speaks on its side of the threshold and is silent on the other.
func TestEachRuleHasItsThreshold(t *testing.T) {
	short := func(run Run, length time.Duration) Run { run.End = run.Start.Add(length); return run }
	elastic := func(run Run) Run { run.Policy = "elastic"; return run }
	for name, tc := range map[string]struct {
		run  Run
		rule string
		says string // empty: nothing
	}{
		"all is well":                {slice(func(*Slice) {}), "", ""},
		"peak 73 %":                  {slice(func(s *Slice) { *s.PeakMiB = 6000 }), "memory-spare", ""},
		"peak 70 %":                  {slice(func(s *Slice) { *s.PeakMiB = 5400 }), "memory-spare", "peak 5.3 of 8 GiB: ask for --vgpu-mem=6000"},
		"peak of tens of MiB":        {slice(func(s *Slice) { *s.PeakMiB = 40 }), "memory-spare", "--vgpu-mem=100M"},
		"a spare but a short run":    {short(slice(func(s *Slice) { *s.PeakMiB = 40 }), 59*time.Second), "memory-spare", ""},
		"a spare, but refused":       {slice(func(s *Slice) { *s.PeakMiB, *s.Refusals = 40, 1 }), "memory-spare", ""},
		"one refused":                {slice(func(s *Slice) { *s.Refusals = 1 }), "memory-refused", "1 allocation was refused at the limit of 8 GiB"},
		"peak 96 %":                  {slice(func(s *Slice) { *s.PeakMiB = 7865 }), "memory-close", "peak 7.7 of 8 GiB"},
		"peak 94 %":                  {slice(func(s *Slice) { *s.PeakMiB = 7700 }), "memory-close", ""},
		"never used":                 {slice(func(s *Slice) { *s.PeakMiB, *s.GPUSeconds = 0, 0 }), "unused", "no GPU memory and no GPU time used"},
		"never used, for a moment":   {short(slice(func(s *Slice) { *s.PeakMiB, *s.GPUSeconds = 0, 0 }), 59*time.Second), "unused", ""},
		"at the cap":                 {slice(func(s *Slice) { s.Timeline = steady(120, 17900) }), "at-cap", "at its cap for 100 % of the time: with more than --vgpu-cores=30 it may be faster"},
		"at the cap in a short run":  {short(slice(func(s *Slice) { s.Timeline = steady(1, 17900) }), 59*time.Second), "at-cap", ""},
		"at the cap for 19 %":        {slice(func(s *Slice) { s.Timeline = after(97) }), "at-cap", ""},
		"at the cap for 21 %":        {slice(func(s *Slice) { s.Timeline = after(95) }), "at-cap", "at its cap for 21 % of the time"},
		"26 of 30 %":                 {slice(func(s *Slice) { s.Timeline = steady(120, 15600) }), "at-cap", ""},
		"no cap":                     {slice(func(s *Slice) { s.SMPercent = 0; s.Timeline = steady(120, 60000) }), "at-cap", ""},
		"elastic":                    {elastic(slice(func(s *Slice) { s.Timeline = steady(120, 17900) })), "at-cap", ""},
		"10 of 30 % in use":          {slice(func(s *Slice) { s.Timeline = steady(120, 6000) }), "cap-spare", "at most 10 % of the GPU's time in use, 30 % were granted: ask for --vgpu-cores=15"},
		"25 of 30 % in use":          {slice(func(s *Slice) { s.Timeline = steady(120, 15000) }), "cap-spare", ""},
		"10 of 30 % in a short run":  {short(slice(func(s *Slice) { s.Timeline = steady(9, 6000) }), 9*time.Minute), "cap-spare", ""},
		"late":                       {slice(func(s *Slice) { s.Timeline = from(15) }), "late", "the first work on the GPU came 15:00 after the start, at 01:15"},
		"not that late":              {slice(func(s *Slice) { s.Timeline = from(9) }), "late", ""},
		"idle":                       {slice(func(s *Slice) { s.Timeline = steady(100, 17900) }), "idle", "idle from 02:40 to the end, for 20:00"},
		"idle, by nobody's count":    {slice(func(s *Slice) { s.Timeline, s.UnknownSeconds = steady(100, 17900), 60 }), "idle", ""},
		"idle, nearly all counted":   {slice(func(s *Slice) { s.Timeline, s.UnknownSeconds = steady(100, 17900), 59 }), "idle", "idle from 02:40"},
		"idle for less than a tenth": {slice(func(s *Slice) { s.Timeline = steady(109, 17900) }), "idle", ""},
		"idle, but not counted":      {slice(func(s *Slice) { s.SMPercent, s.GPUSeconds = 0, nil; s.Timeline = steady(10, 0) }), "idle", ""},
		"refused":                    {Run{Start: start, End: now, Refusals: map[string]string{"n1": "no GPU is free"}}, "refused", "n1 gave it no slice: no GPU is free"},
		"a whole GPU":                {slice(func(s *Slice) { *s = Slice{Node: "n1", Whole: true} }), "unused", ""},
	} {
		t.Run(name, func(t *testing.T) {
			report := Report{Runs: []Run{tc.run}}
			report.Complete(now, time.UTC)
			got := report.Runs[0].Notes
			if tc.rule == "" && len(got) > 0 {
				t.Errorf("got %+v", got)
			}
			i := slices.IndexFunc(got, func(n Note) bool { return n.Rule == tc.rule })
			switch {
			case tc.says == "" && i >= 0:
				t.Errorf("got %+v", got[i])
			case tc.says != "" && (i < 0 || !strings.Contains(got[i].Text, tc.says)):
				t.Errorf("got %+v, want one that says %q", got, tc.says)
			}
		})
	}
}

// What was seen of a job is said once for each node.
func TestWhoGotAroundItsShareIsTold(t *testing.T) {
	run := slice(func(s *Slice) { s.Caught = usage.Caught{Seen: "runs while it is kept off", Frozen: 2} })
	run.Slices = append(run.Slices, run.Slices[0])
	told := func() string {
		for _, note := range notes(run, now, time.UTC) {
			if note.Rule == "caught" {
				return note.Text
			}
		}
		return ""
	}
	if got := told(); !strings.HasPrefix(got, "a process of the job went on on the GPU while it was others' turn") || strings.Count(got, "frozen 2 times") != 1 {
		t.Errorf("it says %q", got)
	}
	run.Slices[1].Node, run.Slices[1].Seen = "n2", "makes contexts without end"
	if got := told(); !strings.HasPrefix(got, "n1: a process") || !strings.Contains(got, "; n2: a process of the job made and dropped") {
		t.Errorf("of two nodes it says %q", got)
	}
	for i := range run.Slices {
		run.Slices[i].Caught = usage.Caught{}
	}
	if got := told(); got != "" {
		t.Errorf("of nothing it says %q", got)
	}
}

// from is a slice that works from a minute on.
func from(minute int) []timeline.Point {
	return line(120, func(i int) (int64, int64) {
		if i < minute {
			return 0, 0
		}
		return 7000, 17900
	})
}

// What is recommended is enough, and saves a fifth or more.
func TestTheAdviceIsEnoughAndWorthIt(t *testing.T) {
	for _, granted := range []int64{200, 1000, 8000, 20000, 143771} {
		for peak := range granted + 1 {
			advice, ok := adviseMiB(peak, granted)
			if ok && (10*advice < 11*peak || 10*advice >= 8*granted) {
				t.Fatalf("a peak of %d of %d MiB: %d", peak, granted, advice)
			}
		}
	}
}

func TestSomeSlicesAreUnused(t *testing.T) {
	report := Report{Runs: []Run{{Start: start, Slices: []Slice{granted(nil), {Node: "n1", MemMiB: 8000, SMPercent: 30}}}}}
	report.Complete(now, time.UTC)
	if got := report.Runs[0].Notes[0].Text; got != "so far 1 of 2 slices never used: if the program uses one GPU only, ask for fewer (--gres=vgpu:N)" {
		t.Error(got)
	}
}

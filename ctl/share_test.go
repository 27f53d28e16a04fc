// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

func look(job uint32, percent int, busy, held time.Duration) sliceStatus {
	return counted(sliceStatus{Job: job, Device: "GPU-a", SMPercent: percent}, ledger.TimeDevice{BusyNs: uint64(busy), LookedNs: 1}, held)
}

func counted(s sliceStatus, counted ledger.TimeDevice, held time.Duration) sliceStatus {
	s.Time = usage.TimeOf(counted)
	s.shareStatus = shareOf(s.Time, held)
	return s
}

func TestSharesBetweenTwoLooks(t *testing.T) {
	first := nodeStatus{Slices: []sliceStatus{look(1, 30, time.Second, 10*time.Second), look(2, 30, time.Second, 10*time.Second),
		look(3, 30, time.Second, 10*time.Second), {Job: 4, Device: "GPU-a"}}}
	second := nodeStatus{Slices: []sliceStatus{
		look(1, 30, 1300*time.Millisecond, 11*time.Second),
		look(2, 30, 0, 11*time.Second),                                                  // its page was made anew
		look(3, 30, 5*time.Second, 11*time.Second),                                      // more than there was
		{Job: 4, Device: "GPU-a"},                                                       // not readable
		look(5, 30, 100*time.Millisecond, time.Second),                                  // granted in between
		counted(sliceStatus{Job: 6, Device: "GPU-a"}, ledger.TimeDevice{}, time.Second), // vgpud has not looked
	}}
	sharesBetween(first, second, time.Second)
	for i, want := range [][2]string{{"1.3", "30.0%"}, {"0.0", "0.0%"}, {"5.0", "100.0%"}, {"-", "-"}, {"0.1", "10.0%"}, {"-", "-"}} {
		if spent, share := second.Slices[i].cells(); spent != want[0] || share != want[1] {
			t.Errorf("job %d: %s %s, want %v", i+1, spent, share, want)
		}
	}
}

// Between two looks of vgpud lie milliseconds: that is nothing to say.
func TestTimeThatRoundsToNoneIsNotSaid(t *testing.T) {
	for unknown, want := range map[float64]string{
		0.04: "2.0 s of GPU time",
		0.06: "2.0 s of GPU time, 0.1 s of the time not counted",
	} {
		if got := timeText(usage.Time{GPUSeconds: new(2.0), UnknownSeconds: unknown}); got != want {
			t.Errorf("%v s: %q, want %q", unknown, got, want)
		}
	}
}

// Others cancel jobs by these series: a time of which nobody counted is none without work.
func TestTimeThatNobodyCountedIsNoUtilisation(t *testing.T) {
	at := func(busy, unknown time.Duration) nodeStatus {
		return nodeStatus{Slices: []sliceStatus{counted(sliceStatus{Job: 1, SMPercent: 50}, ledger.TimeDevice{BusyNs: uint64(busy), UnknownNs: uint64(unknown), LookedNs: 1}, time.Minute)}}
	}
	if duty := dutyBetween(at(time.Second, 0), at(time.Second+250*time.Millisecond, 0), time.Second); duty[sliceName{job: 1}] != 0.5 {
		t.Errorf("a quarter of a second of half of one is %v", duty)
	}
	if duty := dutyBetween(at(time.Second, 0), at(time.Second, time.Second), time.Second); len(duty) != 0 {
		t.Errorf("while vgpud is away: %v", duty)
	}
}

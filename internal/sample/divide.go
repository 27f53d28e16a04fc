// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
)

const (
	// usualPeriod is how far the driver's samples are apart, where those at hand do not tell.
	usualPeriod = 200 * time.Millisecond
	// remembered is how long the driver keeps samples.
	remembered = 14 * time.Second
)

// weigh says for how many milliseconds each process had a GPU, by samples since a time in microseconds; 0: not known since when. A
// sample stands for the time since the one before it. Where none is between them that tells of an idle GPU, it stands for the usual time.
func weigh(samples []discover.Used, since uint64) map[int]float64 {
	ends := make([]uint64, 0, len(samples))
	for _, s := range samples {
		ends = append(ends, s.AtUnixUs)
	}
	slices.Sort(ends)
	ends = slices.Compact(ends)
	period := periodOf(ends)
	length := make(map[uint64]float64, len(ends))
	for i, end := range ends {
		before := since
		if i > 0 {
			before = ends[i-1]
		}
		length[end] = period
		if gap := float64(end - before); before > 0 && end > before && gap <= period*1.5 {
			length[end] = gap
		}
	}
	used := make(map[int]float64)
	for _, s := range samples {
		if s.SMPercent > 0 { // the driver leaves a rest out, half a percent in the mean
			used[s.PID] += min(float64(s.SMPercent)+0.5, 100) / 100 * length[s.AtUnixUs] / 1000
		}
	}
	return used
}

// periodOf is the shortest time between two samples, within what drivers are known to have.
func periodOf(ends []uint64) float64 {
	shortest := math.Inf(1)
	for i := 1; i < len(ends); i++ {
		shortest = min(shortest, float64(ends[i]-ends[i-1]))
	}
	if low, high := 100e3, 1e6; shortest >= low && shortest <= high {
		return shortest
	}
	return float64(usualPeriod.Microseconds())
}

// interval is what is known of one GPU between two looks. Times are milliseconds.
type interval struct {
	used    map[uint32]float64 // by each job, of the driver's samples
	others  float64            // by processes of no slice
	metered map[uint32]float64 // by each job with a slice of the GPU, of its ledger
	free    []uint32           // jobs whose slice has no share to keep
	whole   bool               // metered is all that was metered meanwhile: no slice came or went
}

// had is what a slice had of an interval besides what is metered.
type had struct {
	ms     float64
	isBusy bool // whatever it comes to: the driver has seen it at work
}

// sampled is the GPU time of each free slice that is not in its ledger. What a device was busy for, less what is metered, is what free
// slices had; among them it is divided as their samples are, each of which books all that the device was busy on one of the processes.
func (i interval) sampled() map[uint32]had {
	busy, shares, metered := i.others, i.others, 0.0
	for _, job := range slices.Sorted(maps.Keys(i.used)) {
		busy += i.used[job]
	}
	for _, job := range slices.Sorted(maps.Keys(i.metered)) {
		metered += i.metered[job]
	}
	for _, job := range i.free {
		shares += i.used[job]
	}
	got := make(map[uint32]had, len(i.free))
	for _, job := range i.free {
		it := had{isBusy: i.used[job] > 0}
		switch {
		case it.isBusy && i.whole:
			it.ms = max(0, busy-metered) * i.used[job] / shares
		case it.isBusy:
			it.ms = max(0, i.used[job]-i.metered[job])
		}
		got[job] = it
	}
	return got
}

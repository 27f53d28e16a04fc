// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
)

const (
	// usualPeriod is how far the driver's samples are apart, where those at hand do not tell.
	usualPeriod = 200 * time.Millisecond
	// remembered is how long the driver keeps samples.
	remembered = 14 * time.Second
)

// weigh says for how many milliseconds each process had a GPU, by what the driver said since a time in microseconds, and since when it is to
// be asked next. whole: nothing since then can have been forgotten.
func weigh(told audit.Utilization, since uint64, whole bool) (used map[int]float64, next uint64) {
	const period = uint64(usualPeriod / time.Microsecond)
	for _, s := range told.Used {
		next = max(next, s.AtUnixUs)
	}
	until := next
	if now := uint64(told.At.UnixMicro()); next+period*3/2 < now {
		// The GPU has been idle, or there is no sample yet. Those that are there end half their length ago in the mean. What is asked for next
		// begins with the last that told of work: a time in the middle of one would be taken for all of it.
		until = now - period/2
	}
	next = max(next, since)
	used, ok := byMeans(told, since, until)
	switch {
	case ok:
	case whole:
		used = bySamples(told.Used, since)
	default:
		used = bySamples(told.Used, 0)
	}
	// Together they cannot have had more than there was. Less they can, where somebody has ended.
	if most, sum := busyMs(told, since, until), total(used); most >= 0 && sum > most {
		for pid := range used {
			used[pid] *= most / sum
		}
	}
	return used, next
}

// total adds up, always in the same order.
func total(used map[int]float64) (sum float64) {
	for _, pid := range slices.Sorted(maps.Keys(used)) {
		sum += used[pid]
	}
	return sum
}

// busyMs is for how long the GPU was at work between two times in microseconds; below 0: not known.
func busyMs(told audit.Utilization, since, until uint64) float64 {
	if told.Busy == nil || until <= since {
		return -1
	}
	return *told.Busy * float64(until-since) / 1000
}

// byMeans takes each process's only entry for its mean since the time that was asked for. Where they come to more than the GPU was busy,
// they are not: the driver tells each sample, and there was one of each process.
func byMeans(told audit.Utilization, since, until uint64) (used map[int]float64, ok bool) {
	used = make(map[int]float64)
	over := float64(until-min(since, until)) / 1000
	for _, s := range told.Used {
		if _, twice := used[s.PID]; twice {
			return nil, false
		}
		used[s.PID] = percentMs(s, over)
	}
	maps.DeleteFunc(used, func(_ int, ms float64) bool { return ms == 0 })
	most, slack := busyMs(told, since, until), over/10+2*float64(usualPeriod.Milliseconds())
	return used, most < 0 || total(used) <= most+slack
}

// percentMs is what an entry is of a time. The driver leaves a rest out, half a percent in the mean.
func percentMs(s discover.Used, ms float64) float64 {
	if s.SMPercent == 0 {
		return 0
	}
	return min(float64(s.SMPercent)+0.5, 100) / 100 * ms
}

// bySamples: a sample stands for the time since the one before it. Where none is between them that tells of an idle GPU, it stands for
// the usual time.
func bySamples(samples []discover.Used, since uint64) map[int]float64 {
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
		if s.SMPercent > 0 {
			used[s.PID] += percentMs(s, length[s.AtUnixUs]/1000)
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

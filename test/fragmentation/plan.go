// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"sort"
	"time"
)

// slot is a slice in a plan.
type slot struct {
	mib, percent int
	from, to     time.Time
}

// plan gives each job its time and its GPUs, in the order in which they came, knowing how long each takes: as early as
// it delays none of those before it. Without overtaking, none begins before the one that came before it.
func plan(jobs []*job, starting, leaving time.Duration, overtaking bool) []time.Time {
	var on [gpus][]slot
	var began []time.Time
	last := time.Time{}
	for _, j := range jobs {
		length := starting + j.ended.Sub(j.begun) + leaving
		from := j.submitted
		if !overtaking && last.After(from) {
			from = last
		}
		at, where := earliest(on, j, from, length)
		for _, gpu := range where {
			on[gpu] = append(on[gpu], slot{j.mib, j.percent, at, at.Add(length)})
		}
		last = at
		began = append(began, at.Add(starting))
	}
	return began
}

// earliest tries the moments at which something leaves, and takes the GPUs that are fullest then.
func earliest(on [gpus][]slot, j *job, from time.Time, length time.Duration) (time.Time, []int) {
	moments := []time.Time{from}
	for _, slots := range on {
		for _, s := range slots {
			if s.to.After(from) {
				moments = append(moments, s.to)
			}
		}
	}
	slices.SortFunc(moments, time.Time.Compare)
	for _, at := range moments {
		var where []int
		free := map[int]int{}
		for gpu, slots := range on {
			if mib, ok := room(slots, j, at, at.Add(length)); ok {
				where, free[gpu] = append(where, gpu), mib
			}
		}
		if len(where) >= j.slices {
			sort.SliceStable(where, func(a, b int) bool { return free[where[a]] < free[where[b]] })
			return at, where[:j.slices]
		}
	}
	panic("a job that fits no empty GPU") // the mix has none
}

// room says whether a GPU has room all the time, and how much memory at its fullest.
func room(slots []slot, j *job, from, to time.Time) (mib int, ok bool) {
	least := gpuMiB
	moments := []time.Time{from}
	for _, s := range slots {
		if s.from.After(from) && s.from.Before(to) {
			moments = append(moments, s.from)
		}
	}
	for _, at := range moments {
		mib, percent, alone, count := gpuMiB, 0, false, 0
		for _, s := range slots {
			if !s.from.After(at) && s.to.After(at) {
				mib, percent, count = mib-s.mib, percent+s.percent, count+1
				alone = alone || s.percent == 100
			}
		}
		if alone || j.percent == 100 && count > 0 || mib < j.mib || percent+j.percent > 100 {
			return 0, false
		}
		least = min(least, mib)
	}
	return least, true
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package place

import (
	"cmp"
	"math"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Held is a slice that stands on a GPU.
type Held struct {
	device.Slice
	Job  uint32
	Ends int64 // when its job ends at the latest, in seconds since 1970; 0: not known
}

// Waiter is a job that found no room.
type Waiter struct {
	Job  uint32
	Want Want
}

// Kept is a GPU on which nothing may begin that would be in the way of a job that has waited longer.
type Kept struct {
	Device device.UUID
	Job    uint32 // for whom
	Until  int64  // what ends by then is not in the way; 0: not known
}

// Turn is what a waiter may expect.
type Turn struct {
	Slices []device.Slice // where there is room for it now; nil: nowhere
	Kept   []Kept         // what is kept for it if there is none
	At     int64          // when the GPUs kept for it have room at the latest; 0: not known
}

// never is when a job ends of which that is not known.
const never = math.MaxInt64

// Queue gives each waiter its turn, the first one first: what it has room for is taken for those behind it, and
// so are the GPUs that will have room for it soonest.
func Queue(inv device.Inventory, held []Held, waiters []Waiter, rules Rules) []Turn {
	turns := make([]Turn, 0, len(waiters))
	held = slices.Clone(held)
	rules.Kept = slices.Clone(rules.Kept)
	for _, w := range waiters {
		var t Turn
		if placed, refusal := Place(inv, SlicesOf(held), w.Want, rules); refusal == nil {
			t.Slices = placed
			for _, s := range placed {
				held = append(held, Held{Slice: s, Ends: w.Want.Ends})
			}
		} else {
			t.Kept, t.At = soonest(inv, held, w, rules)
			rules.Kept = append(rules.Kept, t.Kept...)
		}
		turns = append(turns, t)
	}
	return turns
}

// Claims are what turns take from those behind them: slices, and GPUs.
func Claims(turns []Turn) (taken []device.Slice, kept []Kept) {
	for _, t := range turns {
		taken, kept = append(taken, t.Slices...), append(kept, t.Kept...)
	}
	return taken, kept
}

// soonest chooses the GPUs on which a waiter will have room first, going by when jobs end at the latest.
func soonest(inv device.Inventory, held []Held, w Waiter, rules Rules) ([]Kept, int64) {
	type candidate struct {
		gpu device.GPU
		at  int64
	}
	var candidates []candidate
	for _, gpu := range inv.GPUs {
		if at, ok := roomAt(gpu, held, w.Want, rules); ok {
			candidates = append(candidates, candidate{gpu, at})
		}
	}
	if len(candidates) < w.Want.Slices {
		return nil, 0
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.gpu.Index, b.gpu.Index))
	})
	candidates = candidates[:w.Want.Slices]
	at := candidates[len(candidates)-1].at
	if at == never {
		at = 0
	}
	var keep []Kept
	for _, c := range candidates {
		keep = append(keep, Kept{Device: c.gpu.UUID, Job: w.Job, Until: at})
	}
	return keep, at
}

// roomAt is when a GPU has room for a slice, if the jobs on it leave in the order in which they end at the latest.
func roomAt(gpu device.GPU, held []Held, want Want, rules Rules) (int64, bool) {
	var on []Held
	for _, h := range held {
		if h.Device == gpu.UUID {
			if h.Ends == 0 {
				h.Ends = never
			}
			on = append(on, h)
		}
	}
	slices.SortStableFunc(on, func(a, b Held) int { return cmp.Compare(a.Ends, b.Ends) })
	alone := device.Inventory{GPUs: []device.GPU{gpu}}
	at := int64(0)
	for left := on; ; left = left[1:] {
		if weigh(alone, SlicesOf(left), want, rules)[0].obstacle(want, rules) == none {
			return at, true
		}
		if len(left) == 0 {
			return 0, false
		}
		at = left[0].Ends
	}
}

// keptFor is the job that a GPU is kept for, unless the want is gone before that job's turn.
func (r Rules) keptFor(gpu device.UUID, want Want) uint32 {
	for _, k := range r.Kept {
		if k.Device == gpu && (want.Ends == 0 || k.Until == 0 || want.Ends > k.Until) {
			return k.Job
		}
	}
	return 0
}

// SlicesOf leaves out when they end.
func SlicesOf(held []Held) []device.Slice {
	all := make([]device.Slice, 0, len(held))
	for _, h := range held {
		all = append(all, h.Slice)
	}
	return all
}

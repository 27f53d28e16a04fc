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

// Reservation is a GPU on which nothing may begin that would be in the way of a job that has waited longer.
type Reservation struct {
	Device device.UUID
	Job    uint32 // for whom
	Until  int64  // what ends by then is not in the way; 0: not known
	Spare  Room   // what is left of the GPU once that job is there: whatever fits into it is not in the way either
}

// Room is what is left of a GPU.
type Room struct {
	MemMiB    int64
	SMPercent int
	Slices    int
	Latency   int // of the slices
}

// roomBeside is what is left of a GPU once a slice stands there as well.
func (l load) roomBeside(want Want, rules Rules) Room {
	if want.SMPercent == 100 || l.alone {
		return Room{}
	}
	room := Room{l.freeMiB - l.askMiB, 100 - l.sm - want.SMPercent, math.MaxInt32, l.latencyRoom(rules)}
	if rules.SlicesPerGPU > 0 {
		room.Slices = rules.SlicesPerGPU - l.slices - 1
	}
	if want.Priority == device.PriorityLatency {
		room.Latency--
	}
	return room
}

// less is what a slice leaves.
func (r Room) less(gpu device.GPU, want Want) Room {
	r.MemMiB, r.SMPercent, r.Slices = r.MemMiB-want.memOn(gpu.MemMiB), r.SMPercent-want.SMPercent, r.Slices-1
	if want.Priority == device.PriorityLatency {
		r.Latency--
	}
	return r
}

// holds says that a slice fits.
func (r Room) holds(gpu device.GPU, want Want) bool {
	return want.SMPercent < 100 && r.MemMiB >= want.memOn(gpu.MemMiB) && (want.SMPercent == 0 || r.SMPercent >= want.SMPercent) && r.Slices >= 1 &&
		(want.Priority != device.PriorityLatency || r.Latency >= 1)
}

// Turn is what a waiter may expect.
type Turn struct {
	Slices   []device.Slice // where there is room for it now; nil: nowhere
	Reserved []Reservation  // what is kept for it if there is none
	At       int64          // when the GPUs kept for it have room at the latest; 0: not known
	Why      *Refusal       // why there is no room for it now
}

// never is when a job ends of which that is not known.
const never = math.MaxInt64

// Queue gives each waiter its turn, the first one first: for the waiters behind it, its room is taken, and
// so are the GPUs that will have room for it soonest.
func Queue(inv device.Inventory, held []Held, waiters []Waiter, rules Rules) []Turn {
	turns := make([]Turn, 0, len(waiters))
	held = slices.Clone(held)
	rules.Reserved = slices.Clone(rules.Reserved)
	for _, w := range waiters {
		var t Turn
		if t.Slices, t.Why = Place(inv, SlicesOf(held), w.Want, rules); t.Why == nil {
			for _, s := range t.Slices {
				held = append(held, Held{Slice: s, Ends: w.Want.Ends})
			}
		} else {
			t.Reserved, t.At = soonest(inv, held, w, rules)
		}
		rules.Reserved = Behind(rules.Reserved, t, inv, w.Want)
		turns = append(turns, t)
	}
	return turns
}

// Behind is the room that is kept from the waiters behind a job that has had its turn: the room kept before, less the part beside it
// that the job itself takes, and the room that is kept for the job.
func Behind(before []Reservation, t Turn, inv device.Inventory, want Want) []Reservation {
	all := slices.Clone(before)
	claims := t.Reserved
	for _, s := range t.Slices {
		claims = append(claims, Reservation{Device: s.Device})
	}
	for i, claim := range claims {
		gpu, _ := inv.ByUUID(claim.Device)
		for j, k := range before {
			if k.Device == claim.Device && !want.endsBy(k.Until) {
				all[j].Spare = all[j].Spare.less(gpu, want)
			}
		}
		if i < len(t.Reserved) {
			all = append(all, claim)
		}
	}
	return all
}

// soonest chooses the GPUs on which a waiter will have room first, going by when jobs end at the latest.
func soonest(inv device.Inventory, held []Held, w Waiter, rules Rules) ([]Reservation, int64) {
	type candidate struct {
		gpu   device.GPU
		at    int64
		spare Room
	}
	var candidates []candidate
	for _, gpu := range inv.GPUs {
		if at, spare, ok := roomAt(gpu, held, w.Want, rules); ok {
			candidates = append(candidates, candidate{gpu, at, spare})
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
	var keep []Reservation
	for _, c := range candidates {
		keep = append(keep, Reservation{Device: c.gpu.UUID, Job: w.Job, Until: at, Spare: c.spare})
	}
	return keep, at
}

// roomAt is when a GPU has room for a slice, if the jobs on it leave in the order in which they end at the latest, and what is left of
// it then. Where it is not known when, those that end at a known time are thought to be there still: none of them is waited for.
func roomAt(gpu device.GPU, held []Held, want Want, rules Rules) (int64, Room, bool) {
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
		if l := weigh(alone, SlicesOf(left), want, rules)[0]; l.obstacle(want, rules) == none {
			if at == never {
				known := slices.IndexFunc(on, func(h Held) bool { return h.Ends == never })
				l = weigh(alone, SlicesOf(slices.Concat(on[:known], left)), want, rules)[0]
			}
			return at, l.roomBeside(want, rules), true
		}
		if len(left) == 0 {
			return 0, Room{}, false
		}
		at = left[0].Ends
	}
}

// endsBy says that a job is gone by then.
func (w Want) endsBy(at int64) bool { return w.Ends != 0 && at != 0 && w.Ends <= at }

// From says that a GPU is kept from a want: it is neither gone before the turn of the job that the GPU is kept for, nor fits beside it.
func (k Reservation) From(gpu device.GPU, want Want) bool {
	return k.Device == gpu.UUID && !want.endsBy(k.Until) && !k.Spare.holds(gpu, want)
}

// keptFor is the job that a GPU is kept for.
func (r Rules) keptFor(gpu device.GPU, want Want) uint32 {
	for _, k := range r.Reserved {
		if k.From(gpu, want) {
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

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	waiting "github.com/slurm-vgpu/slurm-vgpu/internal/queue"
)

const (
	comesWithin = int64(waiting.ComesWithin / time.Second) // that room is held for a job that was told of it
	mostListed  = waiting.Most
)

// waiter is a job on the list of a node.
type waiter struct {
	job    *job
	told   int64 // when it was told of room; 0: not
	counts bool  // it keeps something from those behind it
}

// claiming says that it goes before those behind it.
func (w *waiter) claiming(now int64) bool { return w.told == 0 || now-w.told < comesWithin }

// claims are what those that wait on a node keep from others there: slices that they have room for, and GPUs.
type claims struct {
	on    [][]place.Held // as node.on
	uses  []use
	kept  []place.Reservation
	free  int   // GPUs that are not kept, or have room for a small slice beside those for which they are
	until int64 // somebody who was told and has not come claims nothing from then on
}

// mayFit is quicker than place.Place, and refuses only what that refuses.
func (c *claims) mayFit(p *policy, want place.Want, k kind) bool {
	fit := 0
	for i, g := range c.uses {
		if p.fits(g, k) && !c.isKept(p, i, want) {
			fit++
		}
	}
	return fit >= k.slices
}

// isKept says that a GPU is kept from a want.
func (c *claims) isKept(p *policy, gpu int, want place.Want) bool {
	return slices.ContainsFunc(c.kept, func(k place.Reservation) bool { return k.From(p.inv.GPUs[gpu], want) })
}

func (c *claims) place(p *policy, want place.Want, k kind) []device.Slice {
	if !c.mayFit(p, want, k) {
		return nil
	}
	var taken []device.Slice
	for _, on := range c.on {
		taken = append(taken, place.SlicesOf(on)...)
	}
	placed, _ := place.Place(p.inv, taken, want, p.rules(c.kept))
	return placed
}

// add gives the next one in the list its turn, as wake does and, for those that were there before, the prolog.
func (c *claims) add(n *node, w *waiter, now int64) place.Turn {
	p, want, k := n.policy, w.job.wantAt(now), mix[w.job.kind]
	turn := place.Turn{Slices: c.place(p, want, k)}
	claiming := w.claiming(now)
	if w.counts = false; !claiming {
		return turn
	}
	if turn.Slices == nil && c.free > 0 {
		turn.Reserved, turn.At = c.soonest(p, w.job.id, want, k)
	}
	w.counts = turn.Slices != nil || turn.Reserved != nil
	for _, slice := range turn.Slices {
		c.grant(place.Held{Slice: slice, Job: w.job.id, Ends: want.Ends}, k)
	}
	if c.kept = place.Behind(c.kept, turn, p.inv, want); len(c.kept) > 0 {
		smallest := place.Want{Slices: 1, SMPercent: int(mix[0].percent), Ends: never}
		smallest.Mem.MiB = mix[0].mib
		c.free = 0
		for i := range p.inv.GPUs {
			if !c.isKept(p, i, smallest) {
				c.free++
			}
		}
	}
	if w.told != 0 {
		c.until = min(c.until, w.told+comesWithin)
	}
	return turn
}

// soonest is what place.Queue keeps for a job that has no room, only quicker; a test holds it to that.
func (c *claims) soonest(p *policy, id uint32, want place.Want, k kind) ([]place.Reservation, int64) {
	at, spare := make([]int64, 0, len(c.uses)), make([]place.Room, len(c.uses))
	order := make([]int, 0, len(c.uses))
	for i, g := range c.uses {
		at = append(at, never)
		if c.isKept(p, i, want) {
			continue
		}
		order = append(order, i)
		at[i] = 0
		for left := c.on[i]; !p.fits(g, k); left = left[1:] {
			g.mib, g.percent, g.slices = g.mib-left[0].MemMiB, g.percent-int64(left[0].SMPercent), g.slices-1
			at[i] = left[0].Ends
		}
		if !k.whole() {
			spare[i] = place.Room{MemMiB: gpuMiB - g.mib - k.mib, SMPercent: int(100 - g.percent - k.percent), Slices: math.MaxInt32, Latency: math.MaxInt32}
		}
	}
	if len(order) < k.slices {
		return nil, 0
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(at[a], at[b]) })
	var kept []place.Reservation
	until := at[order[k.slices-1]]
	for _, i := range order[:k.slices] {
		kept = append(kept, place.Reservation{Device: p.inv.GPUs[i].UUID, Job: id, Until: until, Spare: spare[i]})
	}
	return kept, until
}

func (c *claims) grant(h place.Held, k kind) {
	c.on[h.Index] = hold(c.on[h.Index], h)
	c.uses[h.Index].add(k, 1)
}

func (n *node) noClaims() *claims {
	return &claims{on: slices.Clone(n.on), uses: slices.Clone(n.gpus), free: len(n.gpus), until: never}
}

// before are the claims of those that go before a job: all that wait, if it does not.
func (n *node) before(j *job, now int64) *claims {
	own := slices.IndexFunc(n.waiters, func(w *waiter) bool { return w.job == j })
	if own < 0 && n.claims != nil && now < n.claims.until {
		return n.claims
	}
	c := n.noClaims()
	for i, w := range n.waiters {
		if i == own {
			return c
		}
		if w.counts = false; c.free > 0 && w.claiming(now) {
			c.add(n, w, now)
		}
	}
	n.claims = c
	return c
}

func (p *policy) rules(kept []place.Reservation) place.Rules {
	return place.Rules{DefaultPlace: p.rule, Reserved: kept}
}

// fit is the prolog's choice, behind those that wait here; nil: there is no room.
func (n *node) fit(j *job, now int64) []int {
	c := n.before(j, now)
	placed := c.place(n.policy, j.wantAt(now), mix[j.kind])
	var gpus []int
	for _, slice := range placed {
		gpus = append(gpus, int(slice.Index))
	}
	return gpus
}

// list puts a job among those that wait here. It says when there is room for it at the latest, or 0.
func (n *node) list(j *job, now int64) int64 {
	at := slices.IndexFunc(n.waiters, func(w *waiter) bool { return w.job == j })
	if at >= 0 {
		if w := n.waiters[at]; w.told != 0 {
			w.told, n.claims = 0, nil
		}
		return 0
	}
	if len(n.waiters) >= mostListed {
		return 0
	}
	w := &waiter{job: j}
	n.waiters = append(n.waiters, w)
	j.listed = append(j.listed, n)
	if n.claims == nil {
		return 0
	}
	if n.claims.free == 0 {
		return 0
	}
	return n.claims.add(n, w, now).At
}

func (n *node) unlist(j *job) {
	at := slices.IndexFunc(n.waiters, func(w *waiter) bool { return w.job == j })
	if n.waiters[at].counts {
		n.claims = nil
	}
	n.waiters = slices.Delete(n.waiters, at, at+1)
}

// tell is the epilog's part: it finds out who of those that wait has room now and was not told.
func (n *node) tell(now int64) (told []*job) {
	if len(n.waiters) == 0 {
		return nil
	}
	c := n.noClaims()
	for _, w := range n.waiters {
		if w.counts = false; c.free == 0 || len(told) == tellsAtMost {
			continue
		}
		turn := c.add(n, w, now)
		switch {
		case turn.Slices != nil && w.told == 0:
			w.told = now
			told = append(told, w.job)
			c.until = min(c.until, now+comesWithin)
		case turn.Slices == nil && w.told != 0 && now-w.told >= comesWithin:
			w.told = 0 // it did not come, and the room is gone: it waits again
			c.add(n, w, now)
		}
	}
	n.claims = c
	return told
}

const tellsAtMost = 20

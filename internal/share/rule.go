// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package share is the arithmetic of shares of a GPU's time that vgpud keeps from outside the programs: weights as time slices, turns, caps, the latency
// class, GPU time, and verdicts on processes that cheat. It reads no clock, driver or file. README.md explains each rule by one example with numbers, has the
// table of the rule's states, and explains the words tenant, sleeper, due, rival, rota and heir.
package share

import (
	"slices"
	"time"
)

// Tenant is one with a share of a GPU, and what was seen of it in the last window.
type Tenant struct {
	Share  float64  // of all shares together
	Most   float64  // of the GPU, if something else holds it there; 0: nothing does
	Groups int      // channel groups with work; a slice is each one's, so that a job's is divided
	PIDs   []uint32 // its processes with work; none: they take turns as one

	Used float64 // of the GPU
	Cut  bool    // most of its turns were ended by its slice: it always has work
	Left float64 // of its turns: those that it ended itself
	// A process's step, and its pause until the next one where the wait is short; 0: not known.
	Step, Pause time.Duration
	Latency     bool // of the latency class, and has credit
	Starts      bool // a process of it begins, and waits for the GPU again and again
}

// Plan is what the GPU's scheduler is given until the next window.
type Plan struct {
	TimeSlices []time.Duration // of each group of a tenant
	// Turns are of those who take them by being kept off: more than one, and never two on at once. Empty: all are on.
	Turns []Turn
	// Together: they are taken by the clock (At), and not by what each has had.
	Together bool
}

// Turn is how long one of Plan.Turns is on.
type Turn struct {
	Tenant int    // or Others
	PID    uint32 // one of its processes; 0: all
	For    time.Duration
}

// Rule follows what was used: slices are the shares while everybody has work. Who sleeps between its steps loses its place each time, and
// a slice of its own that is longer does not help; so the others' slices are cut short until it has its share. Short slices
// beside each other would be spent on changes, so the others then take turns of many milliseconds, one on at a time.
//
// Where nobody always has work, all bear what their pauses cost (alike). Two who sleep may need others of different lengths. Whoever has more than its
// share then is one of the others. Who would not use its share alone is behind nobody, and no sleeper takes from those who always have work more than half of what they are due.
type Rule struct {
	short      time.Duration // of the others, while somebody sleeps; 0: nobody does
	timeSlices []time.Duration
	taker      []bool // sleeps, and takes its turn with the others all the same
	alike      alike
}

// Next plans from what was seen.
func (r *Rule) Next(tenants []Tenant) Plan {
	total := 0.0
	for _, t := range tenants {
		if t.Groups > 0 {
			total += t.Share
		}
	}
	long := make([]bool, len(tenants))
	latency := false
	for i, t := range tenants {
		long[i] = t.Groups > 0 && t.Latency
		latency = latency || long[i]
	}
	if latency {
		return beside(tenants, long, besideLatency)
	}
	if len(r.taker) != len(tenants) {
		r.taker, r.timeSlices = make([]bool, len(tenants)), nil
	}
	due, limited := r.dues(tenants, total)
	p, all := plain(tenants, total), false
	if r.alike.see(tenants, r.timeSlices) {
		var follows Plan
		if follows, all = r.alike.plan(tenants, due, limited, roundOf(tenants, total)); all {
			p, r.short = follows, 0
		}
	}
	if !all {
		r.alike.round = 0
		if r.follow(tenants, long, due, limited); r.short > 0 {
			p = beside(tenants, long, r.short)
		}
	}
	p.bound(tenants)
	r.timeSlices = p.TimeSlices
	return p
}

// bound keeps a round of those with a cap shorter than what is counted at a time: each would be beyond its cap or behind it at every look.
func (p *Plan) bound(tenants []Tenant) {
	working, capped := 0, false
	for _, t := range tenants {
		working += min(1, t.Groups)
		capped = capped || t.Groups > 0 && t.Most > 0
	}
	if !capped {
		return
	}
	if slices.ContainsFunc(p.Turns, func(t Turn) bool { return t.Tenant != Others && tenants[t.Tenant].Most > 0 }) {
		p.Turns = nil
	}
	for i, t := range tenants {
		p.TimeSlices[i] = min(p.TimeSlices[i], max(leastOfMany, t.long()/time.Duration(max(1, working))))
	}
}

// part is what a share is of all that are at work.
func part(share, total float64) float64 {
	if total <= 0 {
		return 0
	}
	return share / total
}

// plain divides a round by shares, and a job's part by its groups.
func plain(tenants []Tenant, total float64) Plan {
	round := roundOf(tenants, total)
	var p Plan
	for _, t := range tenants {
		slice := time.Duration(float64(round)*part(t.Share, max(total, t.Share))) / time.Duration(max(1, t.Groups))
		p.TimeSlices = append(p.TimeSlices, max(shortest, slice))
	}
	return p
}

// roundOf is a round's length where everybody always has work.
func roundOf(tenants []Tenant, total float64) time.Duration {
	working, each := 0, roundOfEach
	for _, t := range tenants {
		working += min(1, t.Groups)
		if t.Starts {
			each = roundOfStart
		}
	}
	round := max(leastRound, time.Duration(working)*each)
	for _, t := range tenants {
		if many := float64(time.Duration(t.Groups) * leastOfMany); t.Groups > 1 && t.Share > 0 {
			round = max(round, min(mostRound, time.Duration(many/part(t.Share, total))))
		}
	}
	return round
}

// beside gives some long slices and the others short ones; where these are several, one of them is on at a time.
func beside(tenants []Tenant, long []bool, short time.Duration) Plan {
	var p Plan
	parts := make([]float64, len(tenants))
	for i, t := range tenants {
		slice := short
		if long[i] {
			slice = t.long()
		}
		p.TimeSlices, parts[i] = append(p.TimeSlices, slice), t.Share
	}
	p.Turns = turnsOf(tenants, long, parts)
	return p
}

// turnsOf gives those who do not stay on turns by their parts: more than one, or none.
func turnsOf(tenants []Tenant, stays []bool, parts []float64) (turns []Turn) {
	all := 0.0
	for i, t := range tenants {
		if units := t.units(); !stays[i] && len(units) > 0 {
			all += parts[i]
			for _, pid := range units {
				turns = append(turns, Turn{Tenant: i, PID: pid})
			}
		}
	}
	if len(turns) < 2 {
		return nil
	}
	cycle := float64(time.Duration(len(turns)) * turn)
	for k := range turns {
		i := turns[k].Tenant
		turns[k].For = max(leastTurn, time.Duration(cycle*part(parts[i], all)/float64(len(tenants[i].units()))))
	}
	return turns
}

// long is a slice of each of its groups that nobody cuts.
func (t Tenant) long() time.Duration {
	return max(leastOfMany, longSlice/time.Duration(max(1, t.Groups)))
}

// units are what takes a turn of its own: processes of one job beside each other would be spent on changes as well.
func (t Tenant) units() []uint32 {
	switch {
	case t.Groups == 0:
		return nil
	case len(t.PIDs) == 0:
		return []uint32{0}
	}
	return t.PIDs
}

// Resume goes on from the slices that were set when vgpud ended, which the driver keeps (0: none was), and says so of the tenants: they are taken to have
// had their shares since.
func (r *Rule) Resume(tenants []Tenant, slices []time.Duration) {
	short, long, total := longSlice, false, 0.0
	for i, slice := range slices {
		total += tenants[i].Share
		long = long || slice == tenants[i].long()
		if slice > 0 {
			short = min(short, slice)
		}
	}
	for i, slice := range slices {
		tenants[i].Used, tenants[i].Cut = part(tenants[i].Share, total), slice != tenants[i].long()
	}
	if r.short = 0; long && short < longSlice {
		r.short = max(shortest, short)
	}
}

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

// Tenant is a slice of a GPU, with its share and its figures of the last window.
type Tenant struct {
	Share  float64  // of all shares together
	Most   float64  // of the GPU, for a slice with a cap; 0: no cap
	Groups int      // channel groups with work; each has a time slice, so a job's part is divided
	PIDs   []uint32 // its processes with work, each with turns of its own; none: all have one turn

	Used float64 // of the GPU
	Cut  bool    // most of its turns were ended by its time slice: it always has work
	Left float64 // part of its turns that it ended itself
	// The step of a process, and its pause until the next step where the wait is short; 0: not known.
	Step, Pause time.Duration
	Latency     bool // of the latency class, and has credit
	Starts      bool // a process begins, and waits for the GPU again and again
}

// Plan is the input of the GPU's scheduler until the next window.
type Plan struct {
	TimeSlices []time.Duration // of each group of the tenant at this place
	// Turns are on one after another, and a tenant that takes turns is off in the others' turns. There are two or more. Empty: all tenants are on.
	Turns []Turn
	// Together: turns go by the clock (At), and not by a Rota.
	Together bool
}

// Turn is one of Plan.Turns: a tenant, or a process of it, and for how long it is on.
type Turn struct {
	Tenant int    // or Others
	PID    uint32 // one of its processes; 0: all
	For    time.Duration
}

// Rule makes plans from the tenants' use. While all tenants always have work, time slices are the shares. A tenant that sleeps between its steps loses its
// place with each pause, and a longer time slice of its own does not help. So the others' time slices are shortened until the sleeper has its share. Two or
// more tenants with short time slices would spend these on switches, so they take turns of many milliseconds.
//
// Where no tenant always has work, all bear the cost of their pauses (alike). Two sleepers may need the others at different lengths: then a sleeper that has
// more than its share becomes a taker, one of the others. A tenant that would not use its share even alone is not behind. Sleepers leave to tenants that
// always have work at least half of their due. README.md has the states in a table.
type Rule struct {
	short      time.Duration // the others' time slice while a tenant sleeps; 0: none does
	timeSlices []time.Duration
	taker      []bool // the tenant sleeps, and takes turns with the others all the same
	alike      alike
}

// Next plans from the figures of the last window.
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
	due, limited := r.dues(tenants)
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

// bound keeps the round of capped tenants shorter than a look. In a longer round each would be beyond its cap or behind it at every look.
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

// part is a share as a part of all shares at work.
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

// roundOf is a round's length where all tenants always have work.
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

// beside gives some tenants long time slices and the others short ones. Two or more others take turns.
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

// turnsOf gives turns, by their parts, to the tenants that do not stay on: two or more turns, or none.
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

// long is a time slice for each of the tenant's groups that ends no step.
func (t Tenant) long() time.Duration {
	return max(leastOfMany, longSlice/time.Duration(max(1, t.Groups)))
}

// units are the processes that have turns of their own: short time slices of one job's processes would be spent on switches as well.
func (t Tenant) units() []uint32 {
	switch {
	case t.Groups == 0:
		return nil
	case len(t.PIDs) == 0:
		return []uint32{0}
	}
	return t.PIDs
}

// Resume goes on from the time slices that were set when vgpud ended, which the driver keeps (0: none was set). It fills in the tenants: each counts as having
// had its share since.
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

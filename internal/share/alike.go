// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"slices"
	"time"
)

// alike divides the GPU where all tenants at work sleep between their steps. Each leaves the GPU by itself now and then, so no tenant uses the time that
// the others' pauses cost, and all bear this cost in proportion. A step is the work between two pauses. So the round can be computed in which the tenant
// that needs the shortest round has its share with one step. The other tenants' time slices are their parts of this round.
type alike struct {
	round time.Duration // in which all have their time slices; 0: no tenant is behind, or not all sleep
	trim  float64       // factor on the computed round, from the figures of the last windows
	fix   []float64     // factor on each tenant's part
	had   []float64     // average use of each tenant in the last windows
	steps []step        // of each tenant
	rests int           // plans until this rule is tried again
}

// step is a tenant's work between two pauses, of all its processes together, as the last window showed it.
type step struct {
	long time.Duration
	seen int // windows that showed it, less windows that did not
}

// need is the tenant that needs the shortest round, and the part that each tenant is to have.
type need struct {
	aims  []float64
	who   int // place of that tenant; -1: none
	round time.Duration
}

// see says whether two tenants or more work, and all of these sleep.
func (a *alike) see(tenants []Tenant, was []time.Duration) bool {
	if len(a.steps) != len(tenants) {
		*a = alike{steps: make([]step, len(tenants))}
	}
	count, all := 0, true
	for i, t := range tenants {
		s := &a.steps[i]
		switch {
		case t.Groups == 0:
			s.seen = 0
			continue
		case t.Step > 0 && (!t.Cut || t.Left > leftOften):
			s.long, s.seen = time.Duration(float64(t.Step)/max(leftOften, t.Left)*float64(max(1, len(t.PIDs)))), min(mostSeen, s.seen+1)
		case was != nil && was[i] == t.long(): // the time slice was not long enough to show the step
			s.seen = 0
		default:
			s.seen = max(0, s.seen-1)
		}
		count, all = count+1, all && s.seen >= believed
	}
	return all && count > 1
}

func (a *alike) needs(tenants []Tenant, due []float64, limited []bool) need {
	n := need{aims: make([]float64, len(tenants)), who: -1}
	used, dues := 0.0, 0.0
	for i, t := range tenants {
		if t.Groups > 0 {
			used, dues = used+t.Used, dues+due[i]
		}
	}
	fair := 1.0
	if used < dues {
		fair = used / dues
	}
	for i, t := range tenants {
		if t.Groups == 0 {
			continue
		}
		n.aims[i] = fair * due[i]
		if round := time.Duration(float64(a.steps[i].long) / max(slack, n.aims[i])); !limited[i] && (n.who < 0 || round < n.round) {
			n.who, n.round = i, round
		}
	}
	return n
}

// plan follows the tenants' use; false: no tenant has less than it is to have.
func (a *alike) plan(tenants []Tenant, due []float64, limited []bool, most time.Duration) (Plan, bool) {
	n := a.needs(tenants, due, limited)
	switch {
	case a.rests > 0:
		a.rests--
		return Plan{}, false
	case a.round > 0 && a.trim < useless:
		a.round, a.rests = 0, resting
		return Plan{}, false
	case a.round == 0 && !n.isOff(tenants):
		return Plan{}, false
	case a.round == 0:
		*a = alike{trim: 1, fix: slices.Repeat([]float64{1}, len(tenants)), steps: a.steps}
	}
	a.follow(tenants, n, most)
	return a.divide(tenants, n), true
}

func (n *need) isOff(tenants []Tenant) bool {
	for i, t := range tenants {
		if off := n.aims[i] - t.Used; t.Groups > 0 && max(off, -off) > 2*slack {
			return true
		}
	}
	return false
}

func (a *alike) follow(tenants []Tenant, n need, most time.Duration) {
	if a.had == nil {
		for _, t := range tenants {
			a.had = append(a.had, t.Used)
		}
	}
	for i, t := range tenants {
		a.had[i] += latest * (t.Used - a.had[i])
		if off := n.aims[i] - a.had[i]; i != n.who && t.Groups > 0 && a.had[i] > 0 && max(off, -off) > slack {
			a.fix[i] = min(mostFix, max(1/mostFix, a.fix[i]*math.Sqrt(min(2, max(.5, n.aims[i]/a.had[i])))))
		}
	}
	if n.who < 0 {
		a.round = most
		return
	}
	if off := a.had[n.who]/max(slack, n.aims[n.who]) - 1; n.round < most {
		a.trim = min(1.5, max(.1, a.trim*(1+min(.2, max(-.3, off/2)))))
	}
	a.round = min(most, max(leastTogether, time.Duration(float64(n.round)*a.trim)))
}

// divide gives a long time slice, which is never cut, to each tenant that leaves by itself before its part of the round is over. Short time slices of
// several others would be spent on switches, so these take turns.
func (a *alike) divide(tenants []Tenant, n need) Plan {
	var p Plan
	leaves, parts, others := make([]bool, len(tenants)), make([]float64, len(tenants)), time.Duration(0)
	for i, t := range tenants {
		parts[i] = n.aims[i] * a.fix[i]
		slice := time.Duration(float64(a.round) * parts[i])
		if leaves[i] = t.Groups == 0 || i == n.who && n.round <= 2*a.round || a.steps[i].long < slice; leaves[i] {
			slice = t.long()
		} else {
			others += slice
			slice /= time.Duration(t.Groups)
		}
		p.TimeSlices = append(p.TimeSlices, min(longSlice, max(shortest, slice)))
	}
	turns := turnsOf(tenants, leaves, parts)
	if n.who < 0 || !leaves[n.who] || float64(time.Duration(len(turns)-1)*aSwitch) < dear*float64(a.round) {
		return p
	}
	p.Turns = turns
	for i := range tenants {
		if !leaves[i] {
			p.TimeSlices[i] = max(shortest, others)
		}
	}
	return p
}

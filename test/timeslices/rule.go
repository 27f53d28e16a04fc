// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import "time"

// Tenant is one with a share of a GPU, and what was seen of it in the last window.
type Tenant struct {
	Share  float64 // of 1
	Groups int     // channel groups with work; a slice is each one's, so that a job's is divided

	Used float64 // of 1
	Cut  bool    // most of its turns were ended by its slice: it always has work
}

// Plan is what the GPU's scheduler is given until the next window.
type Plan struct {
	Slices []time.Duration // of each group of a tenant
	// Turns are of those who take them by being kept off: more than one, and never two on at once. Empty: all are on.
	Turns []Turn
}

// Turn is how long one of Plan.Turns is on.
type Turn struct {
	Tenant int
	For    time.Duration
}

const (
	round     = 20 * time.Millisecond  // of all slices where everybody always has work
	longSlice = 20 * time.Millisecond  // of who sleeps and has less than its share: nobody cuts it
	shortest  = 100 * time.Microsecond // of the others meanwhile
	cycle     = 200 * time.Millisecond // of all turns
	slack     = 0.005                  // of the GPU: nothing is changed for less
)

// Rule follows what was used: slices are the shares while everybody has work. Who sleeps between its steps loses its place each time, and
// a slice of its own that is longer does not help; so the others' slices are cut short until it has its share. Short slices
// beside each other would be spent on changes, so the others then take turns of many milliseconds, one on at a time.
type Rule struct {
	short time.Duration // of the others, while somebody sleeps; 0: nobody does
}

// Next plans from what was seen.
func (r *Rule) Next(tenants []Tenant) Plan {
	total := 0.0
	for _, t := range tenants {
		total += t.Share
	}
	behind, ahead, sleeps := 0.0, 0.0, false
	sleeper := make([]bool, len(tenants))
	for i, t := range tenants {
		sleeper[i] = !t.Cut
		if sleeper[i] {
			sleeps = true
			behind = max(behind, t.Share/total-t.Used)
			ahead = max(ahead, t.Used-t.Share/total)
		}
	}
	switch {
	case !sleeps:
		r.short = 0
	case r.short == 0 && behind > slack:
		r.short = round / 10
	case r.short != 0 && behind > slack:
		r.short = max(shortest, time.Duration(float64(r.short)*(1-min(0.5, 4*behind))))
	case r.short != 0 && ahead > slack:
		r.short = min(round, time.Duration(float64(r.short)*(1+min(0.5, 4*ahead))))
	}
	if r.short == 0 {
		return plain(tenants, total)
	}
	return r.followed(tenants, sleeper)
}

func plain(tenants []Tenant, total float64) Plan {
	var p Plan
	for _, t := range tenants {
		p.Slices = append(p.Slices, time.Duration(float64(round)*t.Share/total)/time.Duration(max(1, t.Groups)))
	}
	return p
}

func (r *Rule) followed(tenants []Tenant, sleeper []bool) Plan {
	var p Plan
	others := 0.0
	for i, t := range tenants {
		if sleeper[i] {
			p.Slices = append(p.Slices, longSlice)
			continue
		}
		p.Slices = append(p.Slices, r.short)
		others += t.Share
		p.Turns = append(p.Turns, Turn{Tenant: i})
	}
	if len(p.Turns) < 2 {
		p.Turns = nil
	}
	for k := range p.Turns {
		p.Turns[k].For = time.Duration(float64(cycle) * tenants[p.Turns[k].Tenant].Share / others)
	}
	return p
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"slices"
	"time"
)

// Others is the Tenant of a turn of all tenants without a turn of their own: these are on together, by their time slices.
const Others = -1

// Together gives a job with slices of several GPUs its turns at the same time on each, as its kernels wait for each other: with turns of its own on each GPU a
// job of half of two GPUs had a quarter of its speed. first are the places of such jobs among the tenants, in an order that is the same on all GPUs.
func (r *Rule) Together(tenants []Tenant, first []int, gpus int) Plan {
	total := 0.0
	for _, t := range tenants {
		if t.Groups > 0 {
			total += t.Share
		}
	}
	p := plain(tenants, total)
	r.timeSlices = p.TimeSlices
	due, _ := r.dues(tenants)
	all, others := 0.0, false
	for i, t := range tenants {
		if t.Groups > 0 {
			all, others = all+due[i], others || !slices.Contains(first, i)
		}
	}
	round := time.Duration(gpus) * togetherEach
	left := round
	for k, i := range first {
		turn := Turn{Tenant: i, For: time.Duration(float64(round) * part(due[i], all))}
		if k == len(first)-1 && !others {
			turn.For = left
		}
		left -= turn.For
		p.Turns = append(p.Turns, turn)
	}
	if others {
		p.Turns = append(p.Turns, Turn{Tenant: Others, For: left})
	}
	p.Together = true
	return p
}

// At is the turn that is on by the clock, and for how long still. Plans of the same length have their turns at the same time.
func (p Plan) At(now time.Duration) (turn int, left time.Duration) {
	round := time.Duration(0)
	for _, t := range p.Turns {
		round += t.For
	}
	at := now % max(1, round)
	for k, t := range p.Turns {
		if at < t.For {
			return k, t.For - at
		}
		at -= t.For
	}
	return -1, round
}

// Has says whether a tenant has a turn of its own.
func (p Plan) Has(tenant int) bool {
	return slices.ContainsFunc(p.Turns, func(t Turn) bool { return t.Tenant == tenant })
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Rota says who is on of those who take turns. It goes by how long each really was, so that a change that has to wait makes nobody poorer.
type Rota struct {
	turns []Turn
	had   []float64     // of each, in its own turns
	stint time.Duration // for how long who is on has been
}

// Next is whose turn it is, by its place in turns, after a time in which who was on (-1: nobody).
func (r *Rota) Next(turns []Turn, on int, gone time.Duration) int {
	if !sameTurns(r.turns, turns) {
		r.had, r.stint = make([]float64, len(turns)), 0
		if on >= len(turns) {
			on = -1
		}
	}
	r.turns = turns
	if len(turns) == 0 {
		return -1
	}
	if on >= 0 {
		r.stint += gone
		r.had[on] += float64(gone) / float64(turns[on].For)
		if r.stint < turns[on].For {
			return on
		}
	}
	next := on
	for k := range turns {
		if k != on && (next == on || r.had[k] < r.had[next]) {
			next = k
		}
	}
	least := r.had[next]
	for k := range r.had {
		r.had[k] -= least
	}
	r.stint = 0
	return next
}

func sameTurns(a, b []Turn) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Tenant != b[i].Tenant || a[i].PID != b[i].PID {
			return false
		}
	}
	return true
}

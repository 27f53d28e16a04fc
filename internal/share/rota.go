// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Rota chooses the turn that is on. It goes by how long each turn really was, so that a late call makes no tenant poorer.
type Rota struct {
	Begins time.Duration // the time, by any clock: so each turn begins as often where vgpud is started again and again

	turns []Turn
	had   map[Turn]float64      // of each turn: its time on, in units of its length
	on    map[int]time.Duration // of each tenant, since the last Correct
	stint time.Duration         // for how long the present turn has been on
}

// Next is the place in turns of the turn that is to be on now, or -1 where there are none. on is the turn that was on for the time gone, by its place in the
// turns of the last call; -1: none was.
func (r *Rota) Next(turns []Turn, on int, gone time.Duration) int {
	if r.had == nil && len(turns) > 0 {
		r.pass(turns, -1, 0)
		return r.first(turns)
	}
	on = r.pass(turns, on, gone)
	if on >= 0 && r.stint < turns[on].For {
		return on
	}
	next := on // the turn goes on if the others had more, as a call came late
	for k := range turns {
		if had := r.had[turns[k].whose()]; k != on && (next < 0 || had < r.had[turns[next].whose()] || next == on && had == r.had[turns[on].whose()]) {
			next = k
		}
	}
	if next != on {
		r.stint = 0
	}
	return next
}

// first is the turn that would be on now if there had been turns all the time.
func (r *Rota) first(turns []Turn) int {
	all := time.Duration(0)
	for _, t := range turns {
		all += t.For
	}
	at := r.Begins % all
	for k, t := range turns {
		if at -= t.For; at < 0 {
			return k
		}
	}
	return 0
}

// pass adds the time to the turn that was on, and finds its place among turns. A new turn counts as having had as little as any. A turn that is left out for a
// while is remembered.
func (r *Rota) pass(turns []Turn, on int, gone time.Duration) int {
	if r.had == nil || len(r.had) > mostRemembered {
		r.had, r.on = map[Turn]float64{}, map[int]time.Duration{}
	}
	was := Turn{Tenant: -1}
	if on >= 0 && on < len(r.turns) {
		was = r.turns[on].whose()
	}
	on = -1
	least := 0.0
	for k, t := range turns {
		if t.whose() == was {
			on = k
			r.had[was] += float64(gone) / float64(t.For)
			r.on[t.Tenant] += gone
			r.stint += gone
		}
		if had := r.had[t.whose()]; k == 0 || had < least {
			least = had
		}
	}
	for _, t := range turns {
		r.had[t.whose()] -= least
	}
	if on < 0 {
		r.stint = 0
	}
	r.turns = turns
	return on
}

// Correct goes by the use of the tenants that always have work, as a sleeper may have had more of one tenant's turns than of another's.
func (r *Rota) Correct(tenants []Tenant, gone time.Duration) {
	used, on := 0.0, 0.0
	for i, d := range r.on {
		if i < len(tenants) && tenants[i].Cut {
			used, on = used+tenants[i].Used*float64(gone), on+float64(d)
		}
	}
	if used > 0 && on > 0.9*float64(gone) {
		for _, t := range r.turns {
			if d := r.on[t.Tenant]; d > 0 && t.Tenant < len(tenants) && tenants[t.Tenant].Cut {
				beyond := tenants[t.Tenant].Used*float64(gone)*on/used - float64(d)
				r.had[t.whose()] += min(0.5, max(-0.5, beyond/float64(t.For)/float64(len(tenants[t.Tenant].units()))))
			}
		}
	}
	clear(r.on)
}

func (t Turn) whose() Turn { return Turn{Tenant: t.Tenant, PID: t.PID} }

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Rota says who is on of those who take turns. It goes by how long each really was, so that a change that has to wait makes nobody poorer.
type Rota struct {
	Begins time.Duration // the time, by any clock: each begins as often where vgpud begins again and again

	turns []Turn
	had   map[Turn]float64      // of each, in its own turns; without their length
	on    map[int]time.Duration // of each tenant, since it was corrected
	stint time.Duration         // for how long who is on has been
}

// Next is whose turn it is, by its place in turns, or -1 where there are none. Before, for a time, was on whose place in the turns of the last call
// this is; -1: nobody.
func (r *Rota) Next(turns []Turn, on int, gone time.Duration) int {
	if r.had == nil && len(turns) > 0 {
		r.pass(turns, -1, 0)
		return r.first(turns)
	}
	on = r.pass(turns, on, gone)
	if on >= 0 && r.stint < turns[on].For {
		return on
	}
	next := on // goes on if the others had more, as a change came late
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

// first is whose turn it would be now if turns had been taken all the time.
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

// pass adds the time to who was on, and finds its place among turns. Whoever comes has had as little as any; who has none for a while is remembered.
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

// Correct goes by what those who always have work had in a time, as somebody else may have had more of one's turns than of another's.
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

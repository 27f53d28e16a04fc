// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// around are recent figures of a GPU on which capped tenants are off for a part of the time. Such a GPU is not full, although these always have work.
type around struct {
	gone, on float64 // seconds: in all, and with a capped tenant on
	busy     float64 // seconds of the GPU's engine
	had      float64 // residence of the capped tenants, less the turns
}

// take adds a look.
func (a *around) take(w *window, allOff time.Duration) {
	gone := w.gone.Seconds()
	if gone <= 0 {
		return
	}
	keep := 1 - gone/(gone+aroundRecent.Seconds())
	had := time.Duration(0)
	for i, off := range w.off {
		if off {
			had += w.had[i]
		}
	}
	a.gone, a.on, a.busy, a.had = keep*a.gone+gone, keep*a.on+gone-allOff.Seconds(), keep*a.busy+w.Active*gone, keep*a.had+had.Seconds()
}

// fills says that the GPU is full whenever a capped tenant is on. Then the residence of each capped tenant is its use. Where these are on for little time
// and others work meanwhile, the engine's time alone does not show this. But then the others use as much of the GPU while the capped tenants are off.
func (a *around) fills() bool {
	off := a.gone - a.on
	if off < aroundSlack*a.gone || a.busy < aroundFull*a.on {
		return false
	}
	beside, without := (a.on-a.had)/a.on, (a.busy-a.on)/off
	return beside <= aroundAlike*max(0, without)+2*aroundSlack
}

// ofThoseOff gives the tenants that were off their residence, and returns the rest of the sum.
func (w *window) ofThoseOff(sum time.Duration, used []time.Duration) (left time.Duration) {
	all := time.Duration(0)
	for i, off := range w.off {
		if off {
			all += max(0, w.had[i])
		}
	}
	fits := 1.0
	if all > sum {
		fits = float64(sum) / float64(all)
	}
	for i, off := range w.off {
		if off {
			used[i] = max(1, time.Duration(fits*float64(w.had[i])))
			sum -= used[i]
		}
	}
	return max(0, sum)
}

// wasOff says that a tenant with a cap was off in some of the time until now.
func (m *Meter) wasOff(p Present, goneNS int64) bool {
	for _, pid := range p.PIDs {
		if o := m.offs[pid]; p.Capped && o != nil && o.since(m.atNS-goneNS) {
			return true
		}
	}
	return false
}

// allOff is for how long all the tenants that wasOff names were off at once.
func (m *Meter) allOff(all []Present, goneNS int64) (off time.Duration) {
	left, some := []span{{m.atNS - goneNS, m.atNS}}, false
	for _, p := range all {
		for _, pid := range p.PIDs {
			if o := m.offs[pid]; p.Capped && o != nil && o.since(m.atNS-goneNS) {
				left, some = o.common(left), true
			}
		}
	}
	if !some {
		return 0
	}
	for _, s := range left {
		off += time.Duration(s.untilNS - s.fromNS)
	}
	return off
}

func (o *offs) common(with []span) (both []span) {
	for _, a := range o.times {
		for _, b := range with {
			if s := (span{max(a.fromNS, b.fromNS), min(a.untilNS, b.untilNS)}); s.fromNS < s.untilNS {
				both = append(both, s)
			}
		}
	}
	return both
}

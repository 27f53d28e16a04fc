// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// around is what was seen, of late, of a GPU on which some are kept off for a part of the time, so that it is not full although they always have work.
type around struct {
	gone, on float64 // of the time: for which any of those was on
	busy     float64 // the GPU's engine
	had      float64 // resident, less the turns, of those who were kept off
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

// fills says that the GPU is full whenever one of those who are kept off for a part of the time is on. Then each of these has what it was resident for. The
// engine's time alone does not say so where they are on for little and others are at work meanwhile; but these then use as much of the GPU as without them.
func (a *around) fills() bool {
	off := a.gone - a.on
	if off < aroundSlack*a.gone || a.busy < aroundFull*a.on {
		return false
	}
	beside, without := (a.on-a.had)/a.on, (a.busy-a.on)/off
	return beside <= aroundAlike*max(0, without)+2*aroundSlack
}

// ofThoseOff gives them what they were resident for, and says what is left.
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

// wasOff says that one with a cap was kept off in some of the time until now.
func (m *Meter) wasOff(p Present, goneNS int64) bool {
	for _, pid := range p.PIDs {
		if o := m.offs[pid]; p.Capped && o != nil && o.since(m.atNS-goneNS) {
			return true
		}
	}
	return false
}

// allOff is for how long nobody was on of those who were kept off in some of the time until now.
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

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Window adds up looks until the rule plans anew.
type Window struct {
	sums map[uint64]*sum
}

type sum struct {
	known       time.Duration // of the time, for which the use is known
	used        float64       // seconds
	turns, cuts int
	groups      int
	pids        []uint32
	step, pause time.Duration
	off         bool
}

// Add takes what a look found.
func (w *Window) Add(all []Present, found []Usage) {
	if w.sums == nil {
		w.sums = map[uint64]*sum{}
	}
	for i, u := range found {
		s := w.sums[all[i].Key]
		if s == nil {
			s = &sum{}
			w.sums[all[i].Key] = s
		}
		if u.Known {
			s.known += u.Gone
			s.used += u.Used * u.Gone.Seconds()
		}
		s.turns, s.cuts, s.groups, s.pids = s.turns+u.Turns, s.cuts+u.Cuts, u.Groups, u.PIDs
		s.step, s.pause = u.Step, u.Pause
		s.off = s.off || u.Off
	}
}

// Fill fills in a tenant's figures. A figure that was not seen stays: a caller may begin with a tenant that has its share and always has work.
func (w *Window) Fill(key uint64, t *Tenant) {
	s := w.sums[key]
	if s == nil || s.known == 0 {
		return
	}
	t.Used, t.Groups, t.PIDs = s.used/s.known.Seconds(), s.groups, s.pids
	t.Step, t.Pause = s.step, s.pause
	if s.turns > 0 || !s.off {
		t.Cut = 2*s.cuts > s.turns || s.turns == 0
		t.Left = float64(s.turns-s.cuts) / float64(max(1, s.turns))
	}
}

// Reset begins the next window.
func (w *Window) Reset() { clear(w.sums) }

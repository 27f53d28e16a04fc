// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// held is what the loop knows of a slice with a cap.
type held struct {
	off    bool          // for its cap
	until  time.Duration // it is on, in this period
	on, at time.Duration // for how long it was, until when
	looked time.Duration // the last look
	page   time.Duration // credit that was written down at the last look
}

type span struct{ from, until time.Duration }

func (s *Slice) cap() float64 {
	if s.Hold == nil {
		return 0
	}
	return s.Hold.Share
}

// resumeHold is after a death; nobody counted since the last look.
func (v *Vgpud) resumeHold(s *Slice) {
	if s.Hold == nil {
		return
	}
	if gone := v.GPU.Now - s.held.looked; s.held.looked != 0 {
		h := share.NewHold(s.Hold.Share)
		h.Resume(s.held.page, gone, eachLook, s.Percent/100)
		s.Hold = h
	}
	s.held = held{at: v.GPU.Now, looked: v.GPU.Now, page: s.Hold.Credit()}
}

func (v *Vgpud) lookHold(s *Slice, found share.Usage) {
	if s.Hold == nil {
		return
	}
	s.tally(v.GPU.Now)
	used := found.Used
	if !found.Known {
		used = -1
	}
	s.Hold.Look(found.Gone, s.held.on, used)
	s.held.on, s.held.looked, s.held.page = 0, v.GPU.Now, s.Hold.Credit()
}

// tally adds up for how long it was on, by any of its groups.
func (s *Slice) tally(now time.Duration) {
	on := false
	for _, x := range s.Groups {
		on = on || !x.Off
	}
	if on {
		s.held.on += now - s.held.at
	}
	s.held.at = now
}

// heldNext is when somebody is to be put off, or a period ends.
func (v *Vgpud) heldNext() time.Duration {
	if v.period.until == 0 {
		return never
	}
	next := v.period.until
	for _, s := range v.Slices {
		if s.Hold != nil && !s.held.off && s.held.until > v.GPU.Now && s.held.until < next {
			next = s.held.until
		}
	}
	return next
}

// holdAll begins a period where one has ended and somebody has to be held, and puts off whose part of it is over.
func (v *Vgpud) holdAll() {
	now, holds := v.GPU.Now, 0
	for _, s := range v.Slices {
		if s.Hold != nil && s.Hold.Holds(share.Period(1, len(v.Slices) == 1)) {
			holds++
		}
	}
	begins := now >= v.period.until
	if begins {
		if v.period = (span{}); holds > 0 {
			v.period = span{now, now + share.Period(holds, len(v.Slices) == 1)}
		}
	}
	change := false
	for _, s := range v.Slices {
		if s.Hold == nil {
			continue
		}
		if begins {
			s.held.until = now
			if v.period.until != 0 {
				s.held.until += s.Hold.Next(v.period.until - now)
			}
		}
		off := v.period.until != 0 && now >= s.held.until && s.held.until < v.period.until
		if off != s.held.off {
			s.tally(now)
			s.held.off, change = off, true
		}
	}
	if change {
		v.tallyAll()
		v.Calls++
		v.set()
	}
}

func (v *Vgpud) tallyAll() {
	for _, s := range v.Slices {
		if s.Hold != nil {
			s.tally(v.GPU.Now)
		}
	}
}

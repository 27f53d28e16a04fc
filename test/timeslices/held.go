// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// held is what the loop knows of a slice with a cap.
type held struct {
	off    bool          // for its cap
	until  time.Duration // it is on, in this period
	on, at time.Duration // for how long it was, until when
	could  time.Duration // that it could have had meanwhile
	level  float64       // that it can have
	part   float64       // of a period, for which it may be on
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
		s.held = held{at: v.GPU.Now}
		return
	}
	if gone := v.GPU.Now - s.held.looked; s.held.looked != 0 {
		h := share.NewHold(s.Hold.Share)
		s.demand = share.NewDemand(h.Resume(s.held.page, gone, eachLook, s.Percent/100))
		s.Hold = h
	}
	s.held = held{at: v.GPU.Now, looked: v.GPU.Now, page: s.Hold.Credit()}
}

func (v *Vgpud) lookHold(s *Slice, found share.Usage) {
	s.tally(v.GPU.Now)
	h := &s.held
	if found.Known {
		s.demand.Look(found.Gone, h.on, h.could, found.Used)
	}
	switch {
	case s.Hold == nil:
	case found.Known:
		s.Hold.Look(found.Gone, h.on, found.Used, s.demand.Part())
	default:
		s.Hold.Guess(found.Gone, s.demand.Uses(found.Gone, h.on, h.could))
	}
	if h.on, h.could, h.looked = 0, 0, v.GPU.Now; s.Hold != nil {
		h.page = s.Hold.Credit()
	}
}

// tally adds up for how long it was on, by any of its groups.
func (s *Slice) tally(now time.Duration) {
	if s.isOn() {
		s.held.on += now - s.held.at
		s.held.could += time.Duration(s.held.level * float64(now-s.held.at))
	}
	s.held.at = now
}

func (s *Slice) isOn() bool {
	return slices.ContainsFunc(s.Groups, func(x *Group) bool { return !x.Off })
}

func (v *Vgpud) rivals() []share.Rival {
	all := make([]share.Rival, len(v.Slices))
	for i, s := range v.Slices {
		all[i] = share.Rival{Weight: s.Share, Wants: s.demand.Part(), May: 1, Off: !s.isOn()}
	}
	return all
}

func (v *Vgpud) level() {
	for i, level := range share.Could(v.rivals()) {
		v.Slices[i].held.level = level
	}
}

func (v *Vgpud) divide() {
	all := v.rivals()
	for i, s := range v.Slices {
		if all[i].Off = false; s.Hold != nil {
			all[i].May = s.Hold.May()
		}
	}
	for i, part := range share.Parts(all) {
		v.Slices[i].held.part = part
	}
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
	now := v.GPU.Now
	begins := now >= v.period.until
	if begins {
		v.divide()
		holds := map[float64]bool{}
		for _, s := range v.Slices {
			if s.Hold != nil && share.Holds(s.held.part, share.Period(1, len(v.Slices) == 1)) {
				holds[s.held.part] = true
			}
		}
		if v.period = (span{}); len(holds) > 0 {
			v.period = span{now, now + share.Period(len(holds), len(v.Slices) == 1)}
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
				s.held.until += s.Hold.Next(s.held.part, v.period.until-now)
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
		v.level()
	}
}

func (v *Vgpud) tallyAll() {
	for _, s := range v.Slices {
		s.tally(v.GPU.Now)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package runlist is the scheduler of one simulated GPU: channel groups with work take turns by their time slices, and a switch between two
// costs time. It has no clock: whoever calls it says how late it is, and all that happened until then happens at its exact moment, so that
// a late call changes nothing of who had how much. Times are nanoseconds of one clock. The costs are those of an H200 (docs/verified/time-from-outside.md).
package runlist

import (
	"math"
	"slices"
)

const (
	us = 1000

	loadNS = 127 * us // from the last work of one group to the first of another
	saveNS = 110 * us // more, where the one that leaves is cut in its work

	// Of these are in the log, as part of the turn: before its work begins, and until the save has ended.
	startedNS  = 25 * us
	leftNS     = 35 * us
	leftCutNS  = 120 * us
	defaultNS  = 1024 * us // the driver's slice
	shortestNS = us
)

// Group is a channel group: one context of one process.
type Group struct {
	PID      int // of its process
	UID      uint32
	Channels []*Channel
	SliceNS  int64
	// WaitsForIdle: it is cut between kernels only.
	WaitsForIdle bool

	BusyNS                       int64 // what its kernels ran
	Saves, Restores, Idle, Inner uint32

	queue []*Work
	gone  bool
}

// Work is one kernel.
type Work struct {
	Channel *Channel
	NS      int64
	Done    func(atNS int64) // nil: nobody wants to know

	left int64
}

// Switch is a record of the log: a group came on, or has left.
type Switch struct {
	Group   *Group
	Channel uint32
	Came    bool
	Gone    bool // the group is no more: its record names nobody
	AtNS    int64
}

// Runlist is one GPU's.
type Runlist struct {
	Log func(Switch) // nil: nobody reads it
	Usage

	now    int64
	groups []*Group
	on     *Group // resident
	began  int64  // of its slice
	ended  bool   // its slice is over, but it waits for idle
	coming *Group // of the change that is under way
	until  int64  // of that change; 0: none
	told   []Switch
	nextID uint32
}

// New is a GPU with nothing on it.
func New(clockNS int64) *Runlist { return &Runlist{now: clockNS, nextID: 8} }

// Add makes a group. The caller has advanced to now, here and below.
func (r *Runlist) Add(pid int, uid uint32) *Group {
	g := &Group{PID: pid, UID: uid, SliceNS: defaultNS}
	r.groups = append(r.groups, g)
	return g
}

// Remove ends a group and its work.
func (r *Runlist) Remove(g *Group) {
	g.gone, g.queue = true, nil
	r.groups = slices.DeleteFunc(r.groups, func(other *Group) bool { return other == g })
	if r.on == g {
		r.on = nil
		r.tell(Switch{Group: g, Gone: true, AtNS: r.now})
	}
}

// Submit puts work in.
func (r *Runlist) Submit(w *Work) {
	w.left = max(1, w.NS)
	w.Channel.Group.queue = append(w.Channel.Group.queue, w)
}

// Preempt ends the resident group's slice, if it is the one.
func (r *Runlist) Preempt(g *Group) {
	if next := r.next(); r.until == 0 && r.on == g && next != nil && !g.waitsIn() {
		r.change(next)
	}
}

// Resident is a channel of the group that is on, or was last.
func (r *Runlist) Resident() (channel uint32, ok bool) {
	if r.on == nil || len(r.on.Channels) == 0 {
		return 0, false
	}
	return r.on.Channels[0].ID, true
}

// current is the work that runs, or would.
func (g *Group) current() *Work {
	for _, w := range g.queue {
		if w.Channel.offs == 0 || w.Channel.stays {
			return w
		}
	}
	return nil
}

func (w *Work) isBegun() bool { return w.left < max(1, w.NS) }

// waitsIn says that the group is in a kernel that nothing cuts.
func (g *Group) waitsIn() bool {
	if !g.WaitsForIdle {
		return false
	}
	for _, w := range g.queue {
		if w.isBegun() {
			return true
		}
	}
	return false
}

// running is what the resident group does: a kernel that cannot be cut goes on although its channel is off.
func (g *Group) running() *Work {
	if g.WaitsForIdle {
		for _, w := range g.queue {
			if w.isBegun() {
				return w
			}
		}
	}
	return g.current()
}

// Advance is what happened until then.
func (r *Runlist) Advance(toNS int64) {
	for r.now < toNS {
		if r.until != 0 {
			r.goOnChanging(toNS)
			continue
		}
		next := r.next()
		if next == nil {
			r.ended = false
		}
		if r.on != nil && r.on.running() == nil && len(r.on.queue) > 0 {
			r.change(next) // it is off
			continue
		}
		if next != nil && r.mustLeave() {
			r.change(next)
			continue
		}
		r.goOn(toNS, next != nil)
	}
}

func (r *Runlist) mustLeave() bool {
	if r.on == nil || r.on.running() == nil {
		return true
	}
	if !r.ended && r.sliceLeft() > 0 {
		return false
	}
	r.ended = true
	return !r.on.waitsIn()
}

// next is the first group behind the resident one that has work.
func (r *Runlist) next() *Group {
	at := -1
	for i, g := range r.groups {
		if g == r.on {
			at = i
		}
	}
	for i := 1; i <= len(r.groups); i++ {
		if g := r.groups[(at+i+len(r.groups))%len(r.groups)]; g != r.on && g.current() != nil {
			return g
		}
	}
	return nil
}

// sliceLeft is until the slice ends. One who is alone has slice after slice, so a neighbour that comes waits for the rest of the one that runs.
func (r *Runlist) sliceLeft() int64 {
	slice := max(shortestNS, r.on.SliceNS)
	gone := r.now - r.began
	if gone > slice {
		r.began += gone / slice * slice
		gone = r.now - r.began
	}
	return slice - gone
}

// change begins a switch to a group, or to nobody.
func (r *Runlist) change(to *Group) {
	took := int64(0)
	if g := r.on; g != nil {
		ends := int64(leftNS)
		if g.leaves() {
			took, ends = saveNS, leftCutNS
		}
		r.told = append(r.told, Switch{Group: g, AtNS: r.now + ends})
		if to == nil {
			took = ends
		}
	}
	if to != nil {
		took += loadNS
		r.told = append(r.told, Switch{Group: to, Came: true, AtNS: r.now + took - startedNS})
	}
	r.on, r.coming, r.until, r.ended = nil, to, r.now+took, false
}

// leaves counts it, and says whether the group is cut in its work.
func (g *Group) leaves() (cut bool) {
	for _, c := range g.Channels {
		c.stays = false
	}
	g.Saves++
	if g.WaitsForIdle {
		g.Idle++
		return false
	}
	g.Inner++
	return len(g.queue) > 0
}

func (r *Runlist) goOnChanging(toNS int64) {
	end := min(toNS, r.until)
	r.count(r.now, end, nil)
	r.now = end
	r.tellUntil(end)
	if r.now < r.until {
		return
	}
	r.until = 0
	if r.coming == nil {
		return
	}
	if r.coming.gone {
		r.tell(Switch{Group: r.coming, Gone: true, AtNS: r.now})
	} else {
		r.on, r.began = r.coming, r.now
		r.on.Restores++
	}
	r.coming = nil
}

// goOn runs the resident group until its kernel is done, its slice ends, or it is that late.
func (r *Runlist) goOn(toNS int64, others bool) {
	step := toNS - r.now
	var w *Work
	if r.on != nil {
		w = r.on.running()
	}
	if w == nil {
		r.pass(r.now + step)
		r.now += step
		return
	}
	step = min(step, w.left)
	if others && !r.ended {
		step = min(step, r.sliceLeft())
	}
	w.left -= step
	r.on.BusyNS += step
	r.count(r.now, r.now+step, r.on)
	r.now += step
	if w.left == 0 {
		r.finish(w)
	}
}

func (r *Runlist) finish(done *Work) {
	g := done.Channel.Group
	g.queue = slices.DeleteFunc(g.queue, func(w *Work) bool { return w == done })
	if done.Done != nil {
		done.Done(r.now)
	}
}

func (r *Runlist) tell(s Switch) {
	if len(s.Group.Channels) > 0 {
		s.Channel = s.Group.Channels[0].ID
	}
	if r.Log != nil {
		r.Log(s)
	}
}

func (r *Runlist) tellUntil(ns int64) {
	for len(r.told) > 0 && r.told[0].AtNS <= ns {
		s := r.told[0]
		s.Gone = s.Group.gone && !s.Came
		r.told = r.told[1:]
		r.tell(s)
	}
}

// Never is when nothing will be done by itself.
const Never = math.MaxInt64

// DoneNotBefore is the earliest moment at which a kernel can have ended.
func (r *Runlist) DoneNotBefore() int64 {
	first := int64(Never)
	leaves := max(0, r.until-r.now) // until another can come on
	if r.until == 0 && r.on != nil && r.on.running() != nil {
		left := r.on.running().left
		leaves = min(left, r.sliceLeft()) + loadNS
		first = r.now + left
	}
	for _, g := range r.groups {
		w := g.current()
		if w == nil || (g == r.on && r.until == 0) {
			continue
		}
		wait := leaves
		if g != r.coming && leaves == 0 {
			wait = loadNS
		}
		first = min(first, r.now+wait+w.left)
	}
	return first
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"maps"
	"slices"
	"time"
)

// Present is one who has a slice of the GPU.
type Present struct {
	Key    uint64
	PIDs   []uint32 // its processes, as the log has them
	Groups int      // all that it has
	Capped bool     // it may be kept off for its cap
}

// Look is what is known of the GPU as a whole.
type Look struct {
	AtNS   int64   // of its clock
	Active float64 // for how long its engine was at work since the last look, of 1; negative: not known
	NoLog  bool    // the log is not open, as one alone needs none
}

// Usage is what one had since the last look.
type Usage struct {
	Gone   time.Duration // since the last look
	Busy   time.Duration // to be added to what it had: never negative, and of all together never more than Gone
	Used   float64       // of 1; Busy may be a little less for now, as what was given too much is taken back first
	Known  bool          // false: nobody can say who used the GPU
	Exact  bool          // false: it is a part of a sum, by who was resident
	Turns  int           // that ended, but for those that ended as it was put off
	Cuts   int           // of these, by the slice
	Groups int           // with work; 0: none
	PIDs   []uint32      // of the processes with work
	Step   time.Duration // how long a turn of its processes is
	Pause  time.Duration // until the next one, where the wait is short; 0: not known
	Off    bool          // some of it was kept off, now or at some time since the last look
}

// Meter makes GPU time of what was seen of one GPU.
type Meter struct {
	turns  *Turns
	atNS   int64
	lost   int
	seen   map[uint32]*process
	offs   map[uint32]*offs
	slices map[uint32]*sliceSet
	around around                   // those who are kept off for a part of the time
	owed   map[uint64]time.Duration // what each had and was not given yet; negative: was given too much
}

// process is what was seen of one since the last look.
type process struct {
	look     turnCount // since the last look
	asked    turnCount // since Overran was asked
	paces    paces
	contexts map[uint32]int64 // when each was last on
	seenNS   int64            // until when it was looked for how long it was off and resident
	idle     time.Duration    // of the time since the last look: it was off, and resident as nobody else had work
}

// turnCount counts turns.
type turnCount struct {
	cut, left int // by the slice; by themselves
	over      int // of these: longer than the slice
	stopped   int // as the process was put off
}

func (c *turnCount) add(length, slice time.Duration, stopped bool) {
	switch {
	case stopped:
		c.stopped++
	case float64(length) >= mostOfSlice*float64(slice):
		c.cut++
	default:
		c.left++
	}
	if !stopped && length > slice+overlong {
		c.over++
	}
}

func (c *turnCount) taken() time.Duration {
	return time.Duration(c.cut+c.stopped)*cutTakes + time.Duration(c.left)*leftTakes
}

// Begin is for when looking begins, or begins again; with who is on then, 0 if that is not known.
func (m *Meter) Begin(atNS int64, on uint32) {
	m.turns, m.atNS, m.lost = NewTurns(atNS), atNS, 0
	m.seen, m.offs, m.slices = map[uint32]*process{}, map[uint32]*offs{}, map[uint32]*sliceSet{}
	m.turns.Began, m.turns.Ended = m.began, m.ended
	if on != 0 {
		m.turns.on, m.turns.open = Switch{AtNS: atNS, PID: on}, true
	}
	if m.owed == nil {
		m.owed = map[uint64]time.Duration{}
	}
}

// IsOn is for who is known by other means than the log, which says nothing until somebody else comes on.
func (m *Meter) IsOn(pid uint32) {
	if !m.turns.open {
		m.turns.on, m.turns.open = Switch{AtNS: m.atNS, PID: pid}, true
	}
}

// IsAnyOn is false where nobody knows who is.
func (m *Meter) IsAnyOn() bool { return m.turns.open }

// Take adds a record of the log.
func (m *Meter) Take(s Switch) { m.turns.Take(s) }

// Drop says that the driver dropped records.
func (m *Meter) Drop(records int) {
	if records > 0 {
		m.turns.Lose(records)
	}
}

// sliceSet is what was set last of a process's groups, and what they had before.
type sliceSet struct {
	slice, before time.Duration
	atNS          int64
}

// Slice says what the groups of a process have from that time of the GPU's clock on.
func (m *Meter) Slice(pid uint32, slice time.Duration, atNS int64) {
	m.slices[pid] = &sliceSet{slice: slice, before: m.sliceAt(pid, atNS), atNS: atNS}
}

func (m *Meter) sliceAt(pid uint32, atNS int64) time.Duration {
	switch s := m.slices[pid]; {
	case s == nil:
		return ofTheDriver
	case atNS < s.atNS:
		return s.before
	default:
		return s.slice
	}
}

func (m *Meter) process(pid uint32) *process {
	if m.seen[pid] == nil {
		m.seen[pid] = &process{contexts: map[uint32]int64{}}
	}
	return m.seen[pid]
}

func (m *Meter) began(on Switch) {
	p := m.process(on.PID)
	if o := m.offs[on.PID]; o == nil || !o.since(p.paces.leftNS) {
		p.paces.begin(on.AtNS)
	}
}

func (m *Meter) ended(on Switch, lengthNS int64) {
	p, endNS := m.process(on.PID), on.AtNS+lengthNS
	p.contexts[on.Context] = endNS
	stopped := false
	if o := m.offs[on.PID]; o != nil {
		o.take(on.AtNS, endNS)
		stopped = o.stopped(on.AtNS, endNS)
		p.idles(o, on.AtNS, endNS)
	}
	slice := m.sliceAt(on.PID, endNS)
	p.paces.end(endNS, lengthNS)
	p.look.add(time.Duration(lengthNS), slice, stopped)
	p.asked.add(time.Duration(lengthNS), slice, stopped)
}

// Look says what each of those present had since the last look.
func (m *Meter) Look(l Look, all []Present) []Usage {
	w := window{Look: l, gone: time.Duration(l.AtNS - m.atNS), lost: m.turns.Lost > m.lost}
	m.atNS, m.lost = l.AtNS, m.turns.Lost
	resident := m.turns.Since(l.AtNS)
	if on := m.turns.on; m.turns.open {
		p := m.process(on.PID)
		p.contexts[on.Context] = l.AtNS
		if o := m.offs[on.PID]; o != nil {
			p.idles(o, on.AtNS, l.AtNS)
		}
	}
	m.forget(l.AtNS)
	found := make([]Usage, len(all))
	for i, p := range all {
		found[i] = Usage{Gone: w.gone}
		w.had = append(w.had, m.residence(p, resident, &found[i]))
		w.off = append(w.off, m.wasOff(p, int64(w.gone)))
		w.present = append(w.present, p.Groups > 0)
	}
	for pid, ns := range resident {
		w.untracked += max(0, time.Duration(ns)-m.process(pid).look.taken())
	}
	if l.Active >= 0 {
		m.around.take(&w, m.allOff(all, int64(w.gone)))
		w.around = &m.around
	}
	m.give(all, w.divide(found), found)
	m.rest(all)
	return found
}

// residence is for how long one was resident, less what its turns took. What it takes of resident is not an untracked one's.
func (m *Meter) residence(p Present, resident map[uint32]int64, found *Usage) time.Duration {
	had := time.Duration(0)
	for _, pid := range p.PIDs {
		had += time.Duration(resident[pid])
		delete(resident, pid)
		if known := m.seen[pid]; known != nil {
			had -= known.look.taken() + known.idle
			had := known.look
			found.Turns, found.Cuts = found.Turns+had.cut+had.stopped+had.left, found.Cuts+had.cut+had.stopped
			if len(known.contexts) > 0 {
				found.pace(&known.paces)
				found.Groups += len(known.contexts)
				found.PIDs = append(found.PIDs, pid)
			}
		}
		found.Off = found.Off || m.offs[pid] != nil && m.offs[pid].since(m.atNS-int64(found.Gone))
	}
	found.Groups = min(found.Groups, p.Groups)
	return had
}

// give adds what each had, holds nobody below what he was given before, and all together to the time that passed.
func (m *Meter) give(all []Present, had []time.Duration, found []Usage) {
	owed, together, gone := map[uint64]time.Duration{}, time.Duration(0), time.Duration(0)
	for i, p := range all {
		owed[p.Key] = m.owed[p.Key] + had[i]
		together += max(0, owed[p.Key])
		gone = found[i].Gone
		if gone > 0 {
			found[i].Used = min(1, max(0, float64(had[i])/float64(gone)))
		}
	}
	fits := 1.0
	if together > gone {
		fits = float64(gone) / float64(together)
	}
	for i, p := range all {
		if owed[p.Key] > 0 {
			found[i].Busy = time.Duration(fits * float64(owed[p.Key]))
			owed[p.Key] -= found[i].Busy
		}
	}
	m.owed = owed
}

// forget drops what is old, so that nothing grows with the processes that were there.
func (m *Meter) forget(clockNS int64) {
	maps.DeleteFunc(m.offs, func(_ uint32, o *offs) bool { return o.forget(clockNS) })
	for pid, p := range m.seen {
		if o := m.offs[pid]; o != nil && o.since(clockNS) {
			if o.letItsTurnPass(p.contexts) {
				clear(p.contexts)
			}
			continue // who is kept off has what work it had
		}
		maps.DeleteFunc(p.contexts, func(_ uint32, atNS int64) bool { return clockNS-max(atNS, m.onSince(pid)) > int64(atWork) })
	}
}

// rest drops who is gone, and what counts for one look.
func (m *Meter) rest(all []Present) {
	gone := func(pid uint32) bool {
		return !slices.ContainsFunc(all, func(p Present) bool { return slices.Contains(p.PIDs, pid) })
	}
	maps.DeleteFunc(m.slices, func(pid uint32, _ *sliceSet) bool { return gone(pid) })
	maps.DeleteFunc(m.offs, func(pid uint32, _ *offs) bool { return gone(pid) })
	for pid, p := range m.seen {
		if p.look, p.idle = (turnCount{}), 0; len(p.contexts) == 0 {
			delete(m.seen, pid)
		}
	}
}

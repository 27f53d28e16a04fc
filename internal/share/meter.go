// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"maps"
	"slices"
	"time"
)

// Present is a slice of the GPU that is counted.
type Present struct {
	Key    uint64
	PIDs   []uint32 // its processes, as the log has them
	Groups int      // all that it has
	Capped bool     // it may be kept off for its cap
}

// Look are figures of the GPU as a whole.
type Look struct {
	AtNS   int64   // of its clock
	Active float64 // for how long its engine was at work since the last look, of 1; negative: not known
	NoLog  bool    // the log is not open, as one tenant alone needs none
}

// Usage is the use of a slice since the last look.
type Usage struct {
	Gone   time.Duration // since the last look
	Busy   time.Duration // to be added to its account: never negative, and of all together never more than Gone
	Used   float64       // of 1; Busy may be a little less for now, as time that was given too much is taken back first
	Known  bool          // false: the use of the GPU is not known
	Exact  bool          // false: a part of a sum, by residence
	Turns  int           // that ended
	Cuts   int           // of these, by the time slice
	Groups int           // with work; 0: none
	PIDs   []uint32      // of the processes with work
	Step   time.Duration // how long a turn of its processes is
	Pause  time.Duration // until the next one, where the wait is short; 0: not known
	Off    bool          // some of it was kept off, now or at some time since the last look
}

// Meter makes GPU time from the log and counter of one GPU.
type Meter struct {
	turns  *Turns
	atNS   int64
	lost   int
	seen   map[uint32]*process
	offs   map[uint32]*offs
	slices map[uint32]*sliceSet
	around around                   // capped tenants that are off for a part of the time
	owed   map[uint64]time.Duration // of each slice: time that was not given yet; negative: given too much
}

// process is what the log shows of a process.
type process struct {
	look     turnCount // since the last look
	asked    turnCount // since Overran was asked
	paces    paces
	contexts map[uint32]int64 // when each was last on
	seenNS   int64            // idle is counted until then
	idle     time.Duration    // since the last look: off, but resident as no other process had work
}

// turnCount counts turns.
type turnCount struct {
	cut, left int // ended by the time slice; by the process itself
	over      int // of these: longer than the time slice
	stopped   int // ended as the process was put off
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

// Begin begins the looks, or begins them again. on is the process that is on then, 0 if that is not known.
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

// IsOn names the process that is on, from NVML: the log says nothing until another process comes on.
func (m *Meter) IsOn(pid uint32) {
	if !m.turns.open {
		m.turns.on, m.turns.open = Switch{AtNS: m.atNS, PID: pid}, true
	}
}

// IsAnyOn is false where the process that is on is not known.
func (m *Meter) IsAnyOn() bool { return m.turns.open }

// Take adds a record of the log.
func (m *Meter) Take(s Switch) { m.turns.Take(s) }

// Drop says that the driver dropped records.
func (m *Meter) Drop(records int) {
	if records > 0 {
		m.turns.Lose(records)
	}
}

// sliceSet is the time slice of a process's groups, and the one before it.
type sliceSet struct {
	slice, before time.Duration
	atNS          int64
}

// Slice records the time slice of a process's groups from that time of the GPU's clock on.
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

// Look returns the use of each slice since the last look.
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

// residence is for how long a slice was resident, less the time of its switches. It removes the slice's processes from resident, so the rest is untracked.
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

// give adds each slice's use to its account. No account goes down, and all together never get more than the time that passed.
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

// forget drops old entries, so that nothing grows with the number of ended processes.
func (m *Meter) forget(clockNS int64) {
	maps.DeleteFunc(m.offs, func(_ uint32, o *offs) bool { return o.forget(clockNS) })
	for pid, p := range m.seen {
		if o := m.offs[pid]; o != nil && o.since(clockNS) {
			if o.letItsTurnPass(p.contexts) {
				clear(p.contexts)
			}
			continue // a process that is off still has the work that it had
		}
		maps.DeleteFunc(p.contexts, func(_ uint32, atNS int64) bool { return clockNS-max(atNS, m.onSince(pid)) > int64(atWork) })
	}
}

// rest drops processes that are gone, and counts of one look.
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

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// frozen is a frozen step.
type frozen struct {
	Frozen
	pids []int // of its processes
}

// isFrozen says whether a process is frozen. Other processes of its job go on, and are judged.
func (k *keeper) isFrozen(o *owner) bool {
	return slices.ContainsFunc(k.frozen, func(f frozen) bool { return f.Job == o.Job && slices.Contains(f.pids, o.acts().PID) })
}

// complaint is a finding on a job that the log has at most once in logEach, so that a process that goes on cheating does not fill the log.
type complaint struct {
	job     uint32
	verdict share.Verdict
}

// judge looks at the processes of a GPU's tenants, one after another, as far as the node's budget allows.
func (k *keeper) judge(g *gpu) {
	k.crowd(g)
	type judged struct {
		t *tenant
		o *owner
	}
	var all []judged
	for _, t := range g.tenants {
		for _, o := range k.owners {
			if o.Job == t.Job && (t.has(o.Process.Process) || len(o.groups) == 0) {
				all = append(all, judged{t, o})
			}
		}
	}
	slices.SortFunc(all, func(a, b judged) int { return a.o.PID - b.o.PID })
	for i := range all {
		t, o := all[(i+k.judgeNext)%len(all)].t, all[(i+k.judgeNext)%len(all)].o
		s := o.sightOn(g, t, k.now)
		if k.isFrozen(o) {
			delete(o.sights, g.UUID) // a frozen process does nothing, and begins anew
			continue
		}
		k.begins(o)
		k.check(s, t, o)
		k.sum(g, t, o, s)
		if verdict := s.judge.Look(s.seen); verdict != "" {
			if verdict != share.HidesItsHandles || !k.isHonest(o) {
				k.answer(t, o.acts(), verdict)
			}
			t.bequeath(s.judge, k.now)
			s.judge = share.Judge{}
		}
		s.seen, s.at = share.Seen{}, k.now
	}
	k.judgeNext++
}

// sight are the figures of a process on one GPU since it was judged there last.
type sight struct {
	judge share.Judge
	seen  share.Seen
	at    time.Duration
	next  int    // the place of the group that is read next
	doubt *group // had another time slice, and is read again
	asked bool   // how a group was saved
	quiet int    // looks in a row at which none of its named groups was saved, while its time slice ended turns: other groups work
}

func (o *owner) sightOn(g *gpu, t *tenant, now time.Duration) *sight {
	s := o.sights[g.UUID]
	if s == nil {
		s = &sight{at: now}
		if now < t.heirs || t.killed() > 0 {
			s.judge = t.before.Heir()
		}
		o.sights[g.UUID] = s
	}
	return s
}

// bequeath keeps the figures of a process that has ended.
func (k *keeper) bequeath(o *owner) {
	for uuid, s := range o.sights {
		g := k.gpus[uuid]
		if g == nil {
			continue
		}
		for _, t := range g.tenants {
			if t.Job == o.Job {
				t.bequeath(s.judge, k.now)
			}
		}
	}
}

func (t *tenant) bequeath(j share.Judge, now time.Duration) {
	if now >= t.heirs && t.killed() == 0 {
		t.before = share.Judge{}
	}
	t.before, t.heirs = t.before.Worse(j), now+inheritFor
}

// crowd says whether a tenant waits: the GPU is full, and a tenant that always has work has less than its part.
func (k *keeper) crowd(g *gpu) {
	used, shares := 0.0, 0.0
	for _, t := range g.tenants {
		if t.works() || t.hidden {
			used += t.known.Used
			shares += t.share
		}
	}
	g.others = used >= othersFull && shares > 0 && slices.ContainsFunc(g.tenants, func(t *tenant) bool {
		return t.works() && t.known.Cut && t.known.Used < t.share/shares-othersLess
	})
	for _, t := range g.tenants {
		t.due = 0
		if shares > 0 {
			t.due = t.share / shares
		}
	}
}

// isHonest says whether the library is in a process whose groups are not known: it may be that it could not see or write them.
func (k *keeper) isHonest(o *owner) bool {
	if !o.honest && k.Attached(o.Process) {
		o.honest = true
		k.Log.Warn("a process has the library, and not its weight: no channel group of it is known", "job", o.Job, "pid", o.PID, "unseen", o.More)
	}
	return o.honest
}

// check reads from the driver whether the time slice of one of a process's groups is still the one that was set, and how the group was saved. A group that had
// another time slice is read again, however many groups there are: a process that cheats with one group may have others that do not.
func (k *keeper) check(s *sight, t *tenant, o *owner) {
	var mine []*group
	for _, m := range t.groups {
		if m.owner == o {
			mine = append(mine, m)
		}
	}
	if len(mine) == 0 {
		return
	}
	m := s.doubt
	if !slices.Contains(mine, m) {
		s.next++
		m = mine[s.next%len(mine)]
	}
	if m.slice == 0 || !k.budget.Spare(k.now, 2*share.CostSlice) {
		return
	}
	k.heart.beat(time.Now())
	s.doubt = nil
	now, err := o.Slice(m.handles)
	if err == nil {
		m.verified = k.now
	}
	switch {
	case errors.Is(err, channels.ErrNotTheirs): // its numbers may belong to another process by now: no call uses them
		o.refused = true
		k.forget(m)
		return
	case err != nil:
	case now != m.slice:
		s.seen.Changed++
		s.doubt, m.slice = m, 0 // it is set again
		fallthrough
	default:
		s.seen.Checked++
	}
	if m.handles.Subdevice != 0 {
		if saves, err := o.Saves(m.handles); err == nil {
			if m.seen {
				s.asked = true
				s.seen.Saves += uint64(saves.Saves - m.saves.Saves)
				s.seen.SavesIdle += uint64(saves.Idle - m.saves.Idle)
			}
			m.saves = saves
		}
	}
	m.seen = true
}

// sum completes the figures of a process.
func (k *keeper) sum(g *gpu, t *tenant, o *owner, s *sight) {
	off, ran := g.meter.RanOff(uint32(o.PID))
	if g.log == nil && t.capState.hold != nil && !t.hidden { // a tenant that is alone is in no log
		off, ran = t.capState.hold.RanOff()
	}
	s.seen.Gone, s.seen.Off, s.seen.RanOff = k.now-s.at, off, ran
	if s.asked && g.meter.Cut(uint32(o.PID)) > 0 {
		if s.quiet++; s.seen.Saves > 0 {
			s.quiet = 0
		}
	}
	s.asked = false
	s.seen.Overran = g.meter.Overran(uint32(o.PID))
	s.seen.Used, s.seen.Due, s.seen.OthersWait = t.known.Used, t.due, g.others && len(g.plan.Turns) == 0
	s.seen.Handles, s.seen.Crowded = t.has(o.Process.Process), g.others
	if most := t.cap(); most > 0 && most < t.due { // a slice at its cap takes no other tenant's part
		s.seen.Due, s.seen.Crowded = most, true
	}
	s.seen.Unheld = g.holders[o.PID] && !s.seen.Handles || s.quiet > len(o.groups) ||
		slices.ContainsFunc(t.groups, func(m *group) bool { return m.owner == o && (m.unnamed || len(m.channels) == 0) })
	if len(o.Process.Groups) == ledger.MaxGroups { // else some could not be seen
		s.seen.Unlisted = int(min(o.More, 1<<20))
	}
	if g.holders[o.PID] && !o.honest {
		s.seen.MemoryBytes = 1 // any number: a process without memory is not in the list
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// begin has a GPU's meter begin anew.
func (k *keeper) begin(g *gpu) {
	g.aheadNS = 0
	if g.log != nil {
		if clock, err := g.device.ClockNS(); err == nil {
			g.aheadNS = clock - int64(k.Clock())
		}
	}
	g.looked = k.now
	g.window.Reset()
	g.meter.Begin(int64(k.now)+g.aheadNS, 0)
	for _, t := range g.tenants {
		t.restCap(k.now)
		t.account.Looked = k.now // the time before was counted by another vgpud, or needed no count
	}
}

// lookAll looks at each GPU on which a slice works.
func (k *keeper) lookAll(s sampled) {
	if s.active != nil {
		k.samples.answered()
		if k.lookAt == 0 && !k.seeUnseen(s) { // nothing is at work any more
			k.samples.rest()
			return
		}
	}
	for _, o := range k.owners {
		if o.Ended() { // a killed process does not write to its page that it has ended
			k.drop(o)
		}
	}
	for uuid, g := range k.gpus {
		if g.planned == 0 || g.isLate() { // a tenant has come or gone
			k.settle(g)
		}
		if g.counting() == 0 || g.log != nil && !k.budget.Look(k.now) { // of many GPUs with logs not all at each look
			continue
		}
		active, known := s.active[uuid]
		if !known || k.now-k.began < counterBehind && slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.capState.hold != nil }) {
			active = -1
		}
		if pid, known := s.only[uuid]; known && g.log != nil && slices.ContainsFunc(g.tenants, func(t *tenant) bool { return slices.Contains(t.pids, uint32(pid)) }) {
			g.meter.IsOn(uint32(pid))
		}
		if g.Refused {
			active = g.seeOnly(active, s.only[uuid])
		}
		k.look(g, active)
		k.heart.beat(time.Now())
		if s.holders != nil {
			k.seeHolders(g, s.holders[uuid], s.orphans[uuid])
		}
		if g.Refused && k.now-g.planned >= planEach {
			k.tellPercents(g)
		} else if (g.working() > 0 || g.isUnseen()) && k.now-g.planned >= planEach {
			k.judge(g)
			k.planNow(g)
		}
	}
	if s.holders != nil {
		k.forgetOrphans(s.orphans)
	}
	k.rest()
}

// look counts each tenant's use since the last look.
func (k *keeper) look(g *gpu, active float64) {
	at := int64(k.now)
	if g.log != nil {
		at = k.readLog(g)
	}
	present := make([]share.Present, len(g.tenants))
	for i, t := range g.tenants {
		present[i] = share.Present{Key: t.key, PIDs: t.pids, Groups: len(t.groups) + len(t.late) + t.unknown(), Capped: t.capState.hold != nil}
		if g.refusal.only != 0 && g.refusal.only != t.Job {
			present[i].Groups = 0
		}
	}
	found := g.meter.Look(share.Look{AtNS: at, Active: active, NoLog: g.log == nil}, present)
	g.window.Add(present, found)
	changed := false
	g.quiet++
	for i, t := range g.tenants {
		if !found[i].Known || found[i].Used > quietPart {
			g.quiet = 0
		}
		t.account.Look(k.now, found[i])
		t.uncounted = g.Refused && !found[i].Known
		t.lookAtCap(k.Clock(), found[i].Gone, found[i])
		if t.bucket != nil {
			was := t.goesFirst
			t.goesFirst = t.bucket.Pass(found[i].Gone, found[i].Busy)
			changed = changed || was != t.goesFirst
		}
		t.say()
	}
	g.looked = k.now
	g.level(k.Clock())
	if changed { // other tenants go first now
		k.planNow(g)
	}
	if g.period.next == 0 {
		k.holdAll(g)
	}
	if g.turns.on >= 0 { // a call of the last turn may have failed
		k.apply(g)
	}
}

// readLog gives new records to the meter, and returns until when they are, by the GPU's clock.
func (k *keeper) readLog(g *gpu) (atNS int64) {
	before := k.Clock()
	records, dropped, err := g.log.Poll(true)
	if err != nil {
		k.once("the driver's log of switches cannot be read", err)
		dropped = 1
	}
	g.meter.Drop(int(min(dropped, 1<<30)))
	for _, r := range records {
		if !r.IsSwitch() {
			continue
		}
		g.meter.Take(share.Switch{AtNS: r.AtNS, PID: r.PID, Context: r.Channel, Serial: r.Serial, Start: r.Starts(), End: r.Ends()})
	}
	after := k.Clock()
	if clock, err := g.device.ClockNS(); err == nil {
		g.aheadNS = clock - int64(after)
		return clock
	}
	return int64(before) + g.aheadNS
}

// planNow plans from the figures since the last plan, and sets the plan by the driver's calls.
func (k *keeper) planNow(g *gpu) {
	all := make([]share.Tenant, len(g.tenants))
	for i, t := range g.tenants {
		known := &t.known
		if known.Share == 0 || known.Groups == 0 && t.works() {
			*known = share.Tenant{Used: t.share, Cut: true, Groups: len(t.groups), PIDs: t.pids}
		}
		known.Share, known.Latency, known.Most, known.Starts = t.share, t.goesFirst, t.cap(), k.starts(g, t)
		if g.planned != 0 {
			g.window.Fill(t.key, known)
			t.percent = uint32(min(1, known.Used) * 100 * 100)
		}
		known.Groups = min(known.Groups, len(t.groups))
		known.PIDs = slices.DeleteFunc(slices.Clone(known.PIDs), func(pid uint32) bool { return !t.hasPID(pid) }) // only these can be put off
		all[i] = *known
	}
	if g.planned != 0 {
		g.seeTurns()
	}
	if g.planned != 0 || k.now-g.looked > planEach {
		g.window.Reset()
	}
	switch {
	case g.corrected == 0:
		k.resumeRule(g, all)
		g.corrected = k.now
	case g.planned != 0:
		g.rota.Correct(all, k.now-g.corrected)
		g.corrected = k.now
	}
	g.planned = k.now
	g.plan = g.rule.Next(all)
	if first, gpus := k.spanning(g); len(first) > 0 {
		g.plan = g.rule.Together(all, first, gpus)
	}
	k.setPlanned(g)
	k.takeTurns(g)
}

// setPlanned sets slices. A job of many groups comes last, so that it does not keep others waiting for the budget.
func (k *keeper) setPlanned(g *gpu) {
	order := make([]int, len(g.tenants))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(g.tenants[a].groups) - len(g.tenants[b].groups) })
	for _, i := range order {
		k.setTimeSlices(g, g.tenants[i], g.plan.TimeSlices[i])
	}
}

// resumeRule goes on from the time slices that an earlier vgpud has set, which the driver keeps.
func (k *keeper) resumeRule(g *gpu, all []share.Tenant) {
	was := make([]time.Duration, len(all))
	for i, t := range g.tenants {
		was[i] = t.slice
	}
	g.rule.Resume(all, was)
	g.rota.Begins = k.now
	for i, t := range g.tenants {
		t.known = all[i]
	}
}

// setTimeSlices sets the time slice of each group of a tenant, where the group has another one. A call that the node's budget does not allow waits for the
// next plan.
func (k *keeper) setTimeSlices(g *gpu, t *tenant, slice time.Duration) {
	if !t.works() || slice <= 0 {
		return
	}
	all := true
	for _, m := range slices.Clone(t.groups) { // some may be forgotten
		if d := slice - m.slice; m.slice != 0 && float64(max(d, -d)) <= sliceDiffers*float64(m.slice) {
			continue
		}
		if !m.isNew && !k.budget.Afford(k.now, share.CostSlice) {
			all = false
			continue
		}
		m.isNew = false
		k.heart.beat(time.Now())
		switch err := m.owner.SetTimeSlice(m.handles, slice); {
		case errors.Is(err, channels.ErrNotTheirs): // as of a process that ends, and has closed its files
			m.owner.refused = true
			k.forget(m)
			continue
		case err != nil && !m.owner.Ended():
			k.once("a weight is not kept: the driver takes no time slice for a group", err)
			m.owner.refused = true
			continue
		case err != nil:
			continue
		}
		m.slice = slice.Truncate(time.Microsecond)
		g.meter.Slice(uint32(m.owner.PID), m.slice, int64(k.now)+g.aheadNS)
	}
	if all {
		t.slice = slice.Truncate(time.Microsecond)
	}
}

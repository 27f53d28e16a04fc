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

// setRecord writes the channels and steps that may be off or frozen from now on, before the call that does it. Entries leave the record after the undoing.
func (k *keeper) setRecord(r Record) error {
	if err := r.Write(k.Run.VgpudOff()); err != nil {
		return err
	}
	k.record = r
	if len(r.Frozen) > 0 {
		k.heart.becomes(Holding, time.Now())
	}
	return nil
}

// mayBeOff writes these channels of a GPU to the record, in place of the GPU's channels there.
func (k *keeper) mayBeOff(g *gpu, of []channels.Channel) error {
	r := k.record
	r.Off = slices.DeleteFunc(slices.Clone(r.Off), func(o Off) bool { return o.GPU.UUID == g.UUID })
	if len(of) > 0 {
		r.Off = append(r.Off, Off{GPU: g.GPU, Channels: of})
	}
	return k.setRecord(r)
}

// takeTurns begins planned turns: the groups that may be off from now on are written down first.
func (k *keeper) takeTurns(g *gpu) {
	sets := g.turnSets()
	if len(sets) == 0 {
		if len(g.turns.sets) > 0 {
			k.endTurns(g)
		}
		return
	}
	if !sameSets(g.turns.sets, sets) {
		g.turns.sets, g.turns.on, g.turns.changed = sets, -1, k.now
		if err := k.writeDown(g); err != nil {
			k.once("no slice is switched off for the turn of another, as that cannot be written down", err)
			k.onAgain(g)
			return
		}
		k.enableOthers(g) // groups that take no turns any more
		k.turn(g)
	}
}

// turnSets are the groups of each planned turn: the groups of a process, or all groups of a tenant.
func (g *gpu) turnSets() (sets [][]*group) {
	for _, turn := range g.plan.Turns {
		var set []*group
		for i, t := range g.tenants {
			if i != turn.Tenant && (turn.Tenant != share.Others || g.plan.Has(i)) {
				continue
			}
			for _, member := range t.groups {
				if turn.PID == 0 || uint32(member.owner.PID) == turn.PID {
					set = append(set, member)
				}
			}
		}
		sets = append(sets, set)
	}
	return sets
}

func sameSets(a, b [][]*group) bool {
	return slices.EqualFunc(a, b, func(x, y []*group) bool { return slices.Equal(x, y) })
}

// turn lets the next turn on. The others are put off first, so that never two are on.
func (k *keeper) turn(g *gpu) {
	next, again := 0, leastWait
	if g.plan.Together {
		next, again = g.plan.At(k.now)
	} else {
		next = g.rota.Next(g.plan.Turns, g.turns.on, k.now-g.turns.changed)
	}
	g.turns.changed = k.now
	if next < 0 || next >= len(g.turns.sets) {
		k.endTurns(g)
		return
	}
	if next == g.turns.on {
		g.turns.end = k.now + again
		return
	}
	if !k.budget.Afford(k.now, 2*share.CostDisable) {
		wait := k.budget.Wait(k.now)
		if wait > mostWait && len(g.offChannels()) > 0 {
			k.endTurns(g)
			return
		}
		g.turns.end = k.now + max(leastWait, wait)
		return
	}
	g.turns.on = next
	began := k.now
	k.apply(g)
	k.tickClock()
	g.turns.changed, g.turns.end = k.now, k.now+g.plan.Turns[next].For
	if g.plan.Together {
		g.turns.end = g.turns.changed + max(leastWait, again-(k.now-began))
	}
}

// switchAll puts groups off or lets them on, where they are not so yet, in as few calls as possible.
func (k *keeper) switchAll(g *gpu, off bool, groups []*group) {
	var some []channels.Channel
	var changed []*group
	flush := func() {
		if len(some) == 0 {
			return
		}
		if off {
			k.heart.becomes(Holding, time.Now())
		}
		k.heart.beat(time.Now())
		atNS := int64(k.Clock()) + g.aheadNS
		gone, err := g.device.Disable(off, some)
		if err != nil {
			k.once("channels cannot be kept off, or let on again", err)
			if off { // the groups that are off are not known
				_ = enable(g.device, some)
			}
		}
		for _, member := range changed {
			member.channels = slices.DeleteFunc(member.channels, func(c channels.Channel) bool { return slices.Contains(gone, c) })
			if err == nil { // a group that could not be put off is on; a group that could not be let on is tried again
				g.switched(member, off, atNS, int64(k.Clock())+g.aheadNS)
			}
		}
		some, changed = some[:0], changed[:0]
	}
	for _, member := range groups {
		if member.off == off {
			continue
		}
		if len(some)+len(member.channels) > channels.MostChannels {
			flush()
		}
		some, changed = append(some, member.channels...), append(changed, member)
	}
	flush()
}

// switched notes since when a group is off: from the end of the call that put it off until the middle of the call that let it on. A process is off when all its
// groups on the GPU are.
func (g *gpu) switched(m *group, off bool, beginNS, endNS int64) {
	m.off = off
	at := beginNS + min((endNS-beginNS)/2, int64(halfACall))
	if off {
		at = endNS
	}
	all, allNamed := off, true
	for _, t := range g.tenants {
		for _, other := range t.groups {
			if other.owner == m.owner {
				all, allNamed = all && other.off, allNamed && !other.unnamed
			}
		}
	}
	if allNamed && m.owner.isOff != all {
		m.owner.isOff = all
		g.meter.Off(uint32(m.owner.PID), all, at)
	}
}

// offChannels are the channels that are off now.
func (g *gpu) offChannels() (of []channels.Channel) {
	for _, t := range g.tenants {
		for _, member := range t.groups {
			if member.off {
				of = append(of, member.channels...)
			}
		}
	}
	return of
}

// enableOthers lets on groups that are off and take no turns.
func (k *keeper) enableOthers(g *gpu) {
	var others []*group
	for _, t := range g.tenants {
		for _, member := range t.groups {
			if member.off && !member.of.capState.off && !slices.ContainsFunc(g.turns.sets, func(set []*group) bool { return slices.Contains(set, member) }) {
				others = append(others, member)
			}
		}
	}
	if len(others) > 0 {
		k.budget.Charge(k.now, share.CostDisable)
		k.switchAll(g, false, others)
	}
}

// endTurns lets on groups that were off for another's turn.
func (k *keeper) endTurns(g *gpu) {
	if g.period.ends == 0 {
		k.onAgain(g)
		return
	}
	g.turns.sets, g.turns.on, g.turns.end = nil, -1, 0
	k.budget.Charge(k.now, share.CostDisable)
	k.apply(g)
	if err := k.writeDown(g); err != nil {
		k.once("more is written down than may be off", err)
	}
}

// onAgain ends turns, and lets on slices that are held by a cap.
func (k *keeper) onAgain(g *gpu) {
	if err := k.allOn(g); err != nil {
		k.Log.Error("not all of a GPU's channels are on again", "device", g.UUID, "reason", err)
	}
}

// allOn lets on all channels that the record names on a GPU; it never waits.
func (k *keeper) allOn(g *gpu) error {
	g.turns.sets, g.turns.on, g.turns.end = nil, -1, 0
	k.letGoOfCaps(g)
	at := slices.IndexFunc(k.record.Off, func(o Off) bool { return o.GPU.UUID == g.UUID })
	if at < 0 {
		return nil
	}
	var err error
	switch {
	case g.device == nil && len(g.offChannels()) == 0: // the GPU could not be opened, so no group was put off
	case g.device == nil:
		err = errors.New("the GPU is not open")
	default:
		k.budget.Charge(k.now, share.CostDisable)
		err = enable(g.device, k.record.Off[at].Channels)
	}
	now := int64(k.Clock()) + g.aheadNS
	for _, t := range g.tenants {
		for _, member := range t.groups {
			if member.off {
				g.switched(member, false, now, now)
			}
		}
	}
	if err != nil {
		return err
	}
	g.named = nil
	return k.mayBeOff(g, nil)
}

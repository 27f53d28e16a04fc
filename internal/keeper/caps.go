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

// capState is how a slice is kept at its cap.
type capState struct {
	hold  *share.Hold   // nil: it has no cap
	off   bool          // for its cap
	until time.Duration // until then it is on, in this period
	part  float64       // of a period, for which it may be on

	credit   time.Duration // as the page has it
	creditAt time.Duration
}

// presence is for how long a slice was on since the last look, and how much of the GPU it could have had meanwhile.
type presence struct {
	off, could time.Duration
	isOff      bool          // all its groups are off, for a cap or a turn
	since      time.Duration // since when isOff and level hold
	level      float64       // the part of the GPU that it could have since then
	at         time.Duration // the last look
}

// on is the time on.
func (p *presence) on(gone time.Duration) time.Duration { return max(0, gone-p.off) }

// cap is the largest part of the GPU that a slice may have; 0: all that others leave.
func (s *Slice) cap() float64 {
	if s.Elastic || s.SMPercent <= 0 || s.SMPercent >= 100 {
		return 0
	}
	return float64(s.SMPercent) / 100
}

// followCap follows a slice's cap, which `vgpuctl set` changes.
func (t *tenant) followCap() {
	switch most := t.cap(); {
	case most == 0:
		t.capState = capState{}
	case t.capState.hold == nil:
		t.capState = capState{hold: share.NewHold(most), part: 1}
	case t.capState.hold.Share != most:
		t.capState.hold.SetShare(most)
	}
}

// resumeCap goes on from the credit that an earlier vgpud wrote down.
func (t *tenant) resumeCap(was ledger.TimeDevice, now time.Duration) {
	if t.capState.hold == nil || t.bucket != nil || was.LookedNs == 0 || was.Flags&ledger.TimeIdle != 0 {
		return
	}
	gone := now - time.Duration(max(was.LookedNs, was.CreditAtNs))
	t.demand = share.NewDemand(t.capState.hold.Resume(time.Duration(was.CreditNs), gone, share.Period(1, true)/2, float64(was.Percent)/100/100))
	t.presence.at = now
	t.sayCredit(now)
}

// lookAtCap takes the slice's use since the last look.
func (t *tenant) lookAtCap(now, gone time.Duration, u share.Usage) {
	t.tally(now)
	p, l := &t.presence, &t.capState
	if u.Known && t.works() {
		t.demand.Look(gone, p.on(gone), p.could, u.Used)
	}
	switch {
	case l.hold == nil:
	case !t.counts():
		l.hold.Rest(gone)
	case u.Known:
		l.hold.Look(gone, p.on(gone), u.Used, t.demand.Part())
	default:
		l.hold.Guess(gone, t.demand.Uses(gone, p.on(gone), p.could))
	}
	p.off, p.could, p.at = 0, 0, now
	if l.hold != nil {
		l.credit, l.creditAt = l.hold.Credit(), now
	}
}

// sayCredit writes the credit to the page, also between two looks: a new worker lets the slice pay back its use since then.
func (t *tenant) sayCredit(now time.Duration) {
	t.tally(now)
	p := &t.presence
	gone := max(0, now-p.at)
	t.capState.credit, t.capState.creditAt = t.capState.hold.Expects(gone, t.demand.Uses(gone, p.on(gone), p.could)), now
	t.say()
}

// restCap lets time pass without a look.
func (t *tenant) restCap(now time.Duration) {
	t.tally(now)
	p := &t.presence
	switch gone := now - p.at; {
	case t.capState.hold == nil || p.at == 0 || gone <= 0:
	case t.works():
		t.capState.hold.Guess(gone, t.demand.Uses(gone, p.on(gone), p.could))
	default:
		t.capState.hold.Rest(gone)
	}
	p.off, p.could, p.at = 0, 0, now
}

// tally adds up for how long all groups of a slice were off, and the time that the slice could have had while it was on.
func (t *tenant) tally(now time.Duration) {
	p := &t.presence
	if gone := now - p.since; p.isOff {
		p.off += gone
	} else {
		p.could += time.Duration(p.level * float64(gone))
	}
	p.since = now
	p.isOff = t.works() && !slices.ContainsFunc(t.groups, func(m *group) bool { return !m.off })
}

// rivals are a GPU's tenants.
func (g *gpu) rivals() []share.Rival {
	all := make([]share.Rival, len(g.tenants))
	for i, t := range g.tenants {
		all[i] = share.Rival{Weight: t.share, Wants: t.demand.Part(), May: 1, Off: !t.works() || t.presence.isOff}
	}
	return all
}

// level computes anew the part of the GPU that each slice could have.
func (g *gpu) level(now time.Duration) {
	for _, t := range g.tenants {
		t.tally(now)
	}
	for i, could := range share.Could(g.rivals()) {
		g.tenants[i].presence.level = could
	}
}

// divide computes the part of a period for which each slice may be on.
func (g *gpu) divide() {
	all := g.rivals()
	for i, t := range g.tenants {
		if all[i].Off = !t.works(); t.capState.hold != nil {
			all[i].May = t.capState.hold.May()
		}
	}
	for i, part := range share.Parts(all) {
		g.tenants[i].capState.part = part
	}
}

// callsToHold is how many calls put off all held slices of all GPUs.
func (k *keeper) callsToHold() (calls int) {
	for _, g := range k.gpus {
		named := map[float64]int{} // channels, by the part: equal parts are put off at once
		for _, t := range g.tenants {
			if g.isHeld(t) {
				for _, member := range t.groups {
					named[t.capState.part] += len(member.channels)
				}
			}
		}
		for _, of := range named {
			calls += (of + channels.MostChannels - 1) / channels.MostChannels
		}
	}
	return calls
}

func (g *gpu) isHeld(t *tenant) bool {
	return t.capState.hold != nil && t.works() && share.Holds(t.capState.part, share.Period(1, g.log == nil))
}

// period is the length of the periods of all GPUs.
func (k *keeper) period() time.Duration {
	alone := true
	for _, g := range k.gpus {
		alone = alone && (g.log == nil || !slices.ContainsFunc(g.tenants, g.isHeld))
	}
	return share.Period(k.callsToHold(), alone)
}

// holdAll begins a period where one is over and a slice has to be held, and puts off slices whose part of the period is over.
func (k *keeper) holdAll(g *gpu) {
	if begins := k.now >= g.period.ends; begins {
		g.period.began, g.period.ends = k.now, 0
		g.divide()
		if slices.ContainsFunc(g.tenants, g.isHeld) {
			g.period.ends = nextOf(k.now, k.period())
		}
		for _, t := range g.tenants {
			if t.capState.hold != nil && t.works() && g.period.ends > 0 {
				t.capState.until = k.now + t.capState.hold.Next(t.capState.part, g.period.ends-k.now)
				t.sayCredit(k.now)
			}
		}
	}
	change := false
	for _, t := range g.tenants {
		if t.capState.until < g.period.began { // the slice has come meanwhile
			t.capState.until = g.period.ends
		}
		off := g.period.ends > 0 && t.capState.hold != nil && t.works() && t.capState.until < g.period.ends && k.now+atOnce >= t.capState.until
		if off != t.capState.off {
			change, t.capState.off = true, off
			t.sayCredit(k.now)
		}
	}
	if change || g.isAmiss() {
		k.apply(g)
	}
	g.period.next = g.nextOff()
	if g.period.ends == 0 && len(g.turns.sets) == 0 && g.named != nil { // no slice is held any more
		k.onAgain(g)
		if g.log == nil {
			k.closeLog(g)
		}
	}
}

// nextOf is when the next period begins, at the same time on all GPUs: a job on several GPUs, whose kernels wait for each other, is on at the same time.
func nextOf(now, period time.Duration) time.Duration {
	ends := now - now%period + period
	if ends-now < period/4 {
		ends += period
	}
	return ends
}

// isAmiss says that a group is on that is to be off for a cap, or off without a reason: a process has come, a cap is gone, or a call has failed.
func (g *gpu) isAmiss() bool {
	return slices.ContainsFunc(g.tenants, func(t *tenant) bool {
		return slices.ContainsFunc(t.groups, func(m *group) bool {
			return m.off != g.isToBeOff(m) && (t.capState.off || len(g.turns.sets) == 0) // turns put off their own groups
		})
	})
}

// nextOff is when the next slice is put off, or the period ends; 0: no slice is held.
func (g *gpu) nextOff() time.Duration {
	next := g.period.ends
	for _, t := range g.tenants {
		if t.capState.hold != nil && t.works() && !t.capState.off && g.period.ends > 0 {
			next = min(next, t.capState.until)
		}
	}
	return next
}

// letGoOfCaps ends the caps of a GPU that vgpud does not keep any more, or where no slice works.
func (k *keeper) letGoOfCaps(g *gpu) {
	g.period.ends, g.period.next = 0, 0
	for _, t := range g.tenants {
		t.capState.off = false
	}
}

// isToBeOff says whether a group is to be off now, by turns and caps.
func (g *gpu) isToBeOff(member *group) bool {
	if member.of.capState.off {
		return true
	}
	takes := false
	for i, set := range g.turns.sets {
		if slices.Contains(set, member) {
			if i == g.turns.on {
				return false
			}
			takes = true
		}
	}
	return takes && g.turns.on >= 0
}

// apply puts off the groups that are to be off, and then lets the others on.
func (k *keeper) apply(g *gpu) {
	var off, on []*group
	for _, t := range g.tenants {
		for _, member := range t.groups {
			switch toBeOff := g.isToBeOff(member); {
			case toBeOff == member.off:
			case toBeOff:
				off = append(off, member)
			default:
				on = append(on, member)
			}
		}
	}
	if len(off)+len(on) == 0 {
		return
	}
	if err := k.openGPU(g); err != nil {
		k.notKept(g, err)
		return
	}
	off = slices.DeleteFunc(off, k.isAnothers)
	if len(off) > 0 {
		if err := k.mayBe(g, off); err != nil { // the node's fault: the library would not do better
			k.once("no slice is held at its cap as long as that cannot be written down", err)
			off = nil
		}
	}
	k.switchAll(g, true, off)
	k.switchAll(g, false, on)
	k.tickClock()
	g.level(k.now)
	switch {
	case slices.ContainsFunc(off, func(m *group) bool { return !m.off && len(m.channels) > 0 }): // a group without channels had no call: the judge looks at it
		k.notKept(g, errNotOff)
	case len(off) > 0:
		g.refusal.failed = 0
	}
}

// isAnothers says that a group that is to be off does not belong to its process any more, and forgets the group.
func (k *keeper) isAnothers(m *group) bool {
	if k.now-m.verified < verifyEach {
		return false
	}
	k.budget.Charge(k.now, share.CostSlice/2)
	k.heart.beat(time.Now())
	switch _, err := m.owner.Slice(m.handles); {
	case errors.Is(err, channels.ErrNotTheirs):
		m.owner.refused = true
		k.forget(m)
		return true
	case err == nil:
		m.verified = k.now
	}
	return false
}

// mayBe writes channels to the record before they are put off.
func (k *keeper) mayBe(g *gpu, off []*group) error {
	for _, member := range off {
		for _, c := range member.channels {
			if !g.named[c] {
				return k.writeDown(g)
			}
		}
	}
	return nil
}

// writeDown writes to the record all groups that take turns, are held by a cap, or are off. It does so when these change, and not for each call.
func (k *keeper) writeDown(g *gpu) error {
	var of []channels.Channel
	named := map[channels.Channel]bool{}
	for _, t := range g.tenants {
		for _, member := range t.groups {
			takesTurns := slices.ContainsFunc(g.turns.sets, func(set []*group) bool { return slices.Contains(set, member) })
			if !member.off && !(t.capState.hold != nil && g.period.ends > 0) && !takesTurns {
				continue
			}
			for _, c := range member.channels {
				if !named[c] {
					of, named[c] = append(of, c), true
				}
			}
		}
	}
	if err := k.mayBeOff(g, of); err != nil {
		return err
	}
	if g.named = named; len(of) == 0 {
		g.named = nil
	}
	return nil
}

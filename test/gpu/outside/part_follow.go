// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// What a turn takes of the time for which a process is resident: cut by its slice, or ended by itself.
const (
	cutSeconds  = 0.000145
	leftSeconds = 0.00006
)

// window is how often the rule looks.
const window = 500 * time.Millisecond

// follower lets the rule set slices and turns.
type follower struct {
	rule    share.Rule
	plan    share.Plan
	log     *switchLog
	all     []*tenant
	tenants []share.Tenant
	off     []bool

	residentNS []int64 // of each at the last look
	count      []int
	lookedAt   time.Time
	turn       int
	turnEnd    time.Time

	offCalls, sliceCalls int
}

func newFollower(l *switchLog, shares []float64, all []*tenant) *follower {
	now := time.Now()
	f := &follower{log: l, all: all, lookedAt: now, turnEnd: now,
		off: make([]bool, len(all)), residentNS: make([]int64, len(all)), count: make([]int, len(all))}
	for _, part := range shares {
		f.tenants = append(f.tenants, share.Tenant{Share: part, Groups: 1, Cut: true, Used: part})
	}
	f.replan()
	return f
}

func (f *follower) setOff(i int, off bool) {
	if f.off[i] != off {
		f.all[i].off(off)
		f.off[i] = off
		f.offCalls++
	}
}

func (f *follower) allOn() {
	for i := range f.all {
		f.setOff(i, false)
	}
}

func (f *follower) replan() {
	f.plan = f.rule.Next(f.tenants)
	for i, w := range f.all {
		// A call is made for a change of more than 2 %.
		if us := int(f.plan.TimeSlices[i].Microseconds()); us < w.sliceUS*98/100 || us > w.sliceUS*102/100 {
			w.setSlice(us)
			f.sliceCalls++
		}
	}
	if len(f.plan.Turns) == 0 {
		f.allOn()
	}
}

// look says what a tenant used since the last look, and whether its slice ended most of its turns.
func (f *follower) look(i int, seconds float64) (used float64, cut bool) {
	w := f.all[i]
	pid := w.logPID()
	resident, count := f.log.Total(f.log.clockNS())[pid], f.log.count[pid]
	lengths := f.log.lengthsUS[pid]
	f.log.lengthsUS[pid] = nil
	cuts := 0
	for _, us := range lengths {
		if us >= w.sliceUS*95/100 {
			cuts++
		}
	}
	cut = len(lengths) == 0 || 2*cuts > len(lengths)
	each := leftSeconds
	if cut {
		each = cutSeconds
	}
	used = float64(resident-f.residentNS[i])/1e9 - each*float64(count-f.count[i])
	f.residentNS[i], f.count[i] = resident, count
	return max(0, used/seconds), cut
}

// step is made each time the log was read.
func (f *follower) step() {
	now := time.Now()
	if since := now.Sub(f.lookedAt); since >= window {
		for i := range f.all {
			f.tenants[i].Used, f.tenants[i].Cut = f.look(i, since.Seconds())
		}
		f.lookedAt = now
		f.replan()
	}
	if len(f.plan.Turns) == 0 || now.Before(f.turnEnd) {
		return
	}
	f.turn = (f.turn + 1) % len(f.plan.Turns)
	comes := f.plan.Turns[f.turn]
	for k, other := range f.plan.Turns {
		if k != f.turn {
			f.setOff(other.Tenant, true)
		}
	}
	f.setOff(comes.Tenant, false)
	if f.turnEnd = f.turnEnd.Add(comes.For); f.turnEnd.Before(now) {
		f.turnEnd = now.Add(comes.For)
	}
}

// often is how often the log is read where something is done by it.
const often = 10 * time.Millisecond

func (t *trial) follow() {
	const waits1, waits01, always = "ms=1 host=1", "ms=1 host=0.1", "ms=2"
	const warmSeconds, seconds = 6, 4
	for _, c := range []struct {
		loads  []string
		shares []float64
	}{
		{[]string{always, always}, []float64{.3, .7}},
		{[]string{waits1, always}, []float64{.5, .5}},
		{[]string{waits1, always}, []float64{.2, .8}},
		{[]string{waits01, always}, []float64{.5, .5}},
		{[]string{waits01, always}, []float64{.3, .7}},
		{[]string{waits01, always, always}, []float64{.3, .3, .4}},
		{[]string{waits1, always, always}, []float64{.2, .3, .5}},
		{[]string{waits1, waits01, always, always}, []float64{.25, .25, .25, .25}},
	} {
		all := t.startAll(c.loads...)
		l := openLog(t.gpu)
		f := newFollower(l, c.shares, all)
		looking := looking{log: l, period: often, each: f.step}
		t.measure(warmSeconds, looking, all...)
		offCalls, sliceCalls := f.offCalls, f.sliceCalls
		m := t.measure(seconds, looking, all...)
		var slices []int
		for _, w := range all {
			slices = append(slices, w.sliceUS)
		}
		t.row(fmt.Sprintf("%s: shares %v", strings.Join(c.loads, " + "), c.shares), append([]string{fmt.Sprintf("slices %v us, %d turns, %.0f off and on, %.0f slices a second",
			slices, len(f.plan.Turns), float64(f.offCalls-offCalls)/seconds, float64(f.sliceCalls-sliceCalls)/seconds)}, m.columns()...)...)
		f.allOn()
		l.close()
		t.stop(all...)
	}
}

// capByLog holds one to a share: off when its credit is gone.
type capByLog struct {
	log         *switchLog
	w           *tenant
	credit      timeslices.Credit
	turnSeconds float64

	at         time.Time
	residentNS int64
	count      int
	isOff      bool
	calls      int
	refused    int
}

func (c *capByLog) step() {
	now, pid := time.Now(), c.w.logPID()
	resident, count := c.log.Total(c.log.clockNS())[pid], c.log.count[pid]
	used := float64(resident-c.residentNS)/1e9 - c.turnSeconds*float64(count-c.count)
	off := c.credit.IsOff(ofSeconds(used), now.Sub(c.at))
	c.residentNS, c.count, c.at = resident, count, now
	if off != c.isOff {
		if c.w.off(off) != 0 {
			c.refused++
		}
		c.isOff = off
		c.calls++
	}
}

func (t *trial) beside() {
	for _, load := range []string{"ms=2", "ms=20", "ms=1 host=0.1", "ms=1 host=1"} {
		a, b := t.start(load), t.start("ms=2")
		setSlices(10000, a, b)
		turnSeconds := cutSeconds
		if strings.Contains(load, "host") {
			b.setSlice(300)
			turnSeconds = leftSeconds
		}
		for _, held := range []float64{.3, .1} {
			l := openLog(t.gpu)
			c := &capByLog{log: l, w: a, credit: timeslices.Credit{Share: held}, turnSeconds: turnSeconds, at: time.Now()}
			looking := looking{log: l, period: often, each: c.step}
			const seconds = 4
			t.measure(1, looking, a, b)
			calls := c.calls
			m := t.measure(seconds, looking, a, b)
			t.row(fmt.Sprintf("%s held to %.0f, beside one that fills", load, 100*held), append([]string{
				fmt.Sprintf("%.0f calls a second, %d refused", float64(c.calls-calls)/seconds, c.refused)}, m.columns()...)...)
			a.off(false)
			l.close()
		}
		t.stop(a, b)
	}
}

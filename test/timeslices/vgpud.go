// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// Slice is a job's of the GPU.
type Slice struct {
	Share  float64
	Groups []*Group
	Bucket *share.Bucket // of the latency class

	Account share.Account
	Percent float64

	planned time.Duration
	present share.Present
}

// Vgpud plays the loop of one GPU: it sees the log and what the engine did in all, and sets slices and who is off.
type Vgpud struct {
	GPU    *GPU
	Slices []*Slice
	Budget *share.Budget // of the node

	Late  func() time.Duration // that a look comes after its time
	Loses func() bool          // a record
	Blind bool                 // no GPM

	Plan      share.Plan
	Calls     int
	Condemned map[uint32]share.Verdict

	meter   share.Meter
	window  share.Window
	rule    share.Rule
	rota    share.Rota
	judges  map[uint32]*share.Judge
	records []share.Switch
	tenants []share.Tenant

	on                                int // of Plan.Turns
	rotaAt, lookedAt, plannedAt, next time.Duration
	active                            time.Duration
}

const (
	eachTurn = 10 * time.Millisecond
	eachLook = 100 * time.Millisecond
	eachPlan = 500 * time.Millisecond
)

// NewVgpud has what it needs to know of the slices. What it counts goes on from their accounts.
func NewVgpud(g *GPU, budget *share.Budget, slices ...*Slice) *Vgpud {
	v := &Vgpud{GPU: g, Slices: slices, Budget: budget, Condemned: map[uint32]share.Verdict{}, judges: map[uint32]*share.Judge{}, on: -1,
		rotaAt: g.Now, lookedAt: g.Now, plannedAt: g.Now, active: g.Active}
	v.meter.Begin(int64(g.Now), 0)
	g.Log = func(s share.Switch) { v.records = append(v.records, s) }
	total, was := 0.0, []time.Duration{}
	for _, s := range slices {
		total += s.Share
		was = append(was, s.planned)
	}
	v.rule.Resume(was)
	for i, s := range slices {
		s.present = share.Present{Key: uint64(i), Groups: len(s.Groups), Slice: s.planned}
		seen := map[uint32]bool{}
		for _, x := range s.Groups {
			if !seen[x.PID] {
				s.present.PIDs, seen[x.PID] = append(s.present.PIDs, x.PID), true
				v.judges[x.PID] = &share.Judge{}
			}
		}
		s.Account.Resume(g.Now)
		if s.Bucket != nil {
			s.Bucket.Resume(s.Bucket.Left)
		}
		v.tenants = append(v.tenants, share.Tenant{Share: s.Share, Groups: len(s.Groups), Used: s.Share / total, Cut: true})
	}
	if was[0] == 0 {
		v.replan()
	} else {
		v.next = g.Now + eachLook
	}
	return v
}

// Run goes on until a moment.
func (v *Vgpud) Run(until time.Duration) {
	for v.GPU.Now < until {
		v.GPU.Run(min(until, v.next))
		if v.GPU.Now >= v.next {
			v.step()
		}
	}
}

// Die leaves slices as they are; somebody else puts on again what is off, after a while.
func (v *Vgpud) Die(after time.Duration) {
	v.GPU.Log = nil
	v.GPU.Run(v.GPU.Now + after)
	for _, s := range v.Slices {
		for _, x := range s.Groups {
			x.Off = false
		}
	}
}

func (v *Vgpud) step() {
	v.takeTurns()
	if v.GPU.Now-v.lookedAt >= eachLook {
		v.look()
		if v.GPU.Now-v.plannedAt >= eachPlan {
			v.judge()
			v.replan()
		}
	}
	v.next = v.GPU.Now + eachLook
	if len(v.Plan.Turns) > 0 {
		v.next = v.GPU.Now + eachTurn
	}
	if v.Late != nil {
		v.next += v.Late()
	}
	v.next += v.Budget.Wait(v.GPU.Now)
}

// look reads the log and the engine's counter.
func (v *Vgpud) look() {
	g := v.GPU
	for _, s := range v.records {
		if v.Loses == nil || !v.Loses() {
			v.meter.Take(s)
		}
	}
	v.records = v.records[:0]
	l := share.Look{AtNS: int64(g.Now), Active: min(1, float64(g.Active-v.active)/float64(g.Now-v.lookedAt)), NoLog: len(v.Slices) == 1}
	if v.Blind {
		l.Active = -1
	}
	v.active, v.lookedAt = g.Active, g.Now
	v.Budget.Charge(g.Now, share.CostLook)
	var all []share.Present
	for _, s := range v.Slices {
		all = append(all, s.present)
	}
	found := v.meter.Look(l, all)
	urgent := false
	for i, s := range v.Slices {
		s.Account.Look(g.Now, found[i])
		if s.Bucket == nil {
			continue
		}
		if goes := s.Bucket.Pass(found[i].Gone, found[i].Busy); goes != v.tenants[i].Urgent {
			v.tenants[i].Urgent, urgent = goes, true
		}
	}
	v.window.Add(all, found)
	if urgent {
		v.plan()
	}
}

func (v *Vgpud) replan() {
	for i := range v.tenants {
		v.window.Fill(uint64(i), &v.tenants[i])
		v.Slices[i].Percent = 100 * v.tenants[i].Used
	}
	v.window.Reset()
	v.plannedAt = v.GPU.Now
	v.plan()
}

func (v *Vgpud) plan() {
	v.Plan = v.rule.Next(v.tenants)
	for i, s := range v.Slices {
		want := v.Plan.Slices[i]
		if s.planned != 0 && float64(want) > .98*float64(s.planned) && float64(want) < 1.02*float64(s.planned) {
			continue
		}
		s.planned, s.present.Slice = want, want
		for _, x := range s.Groups {
			v.Budget.Charge(v.GPU.Now, share.CostSlice)
			v.Calls++
			x.Slice = want
		}
	}
	if len(v.Plan.Turns) == 0 {
		v.allOn()
	}
	v.takeTurns()
}

func (v *Vgpud) allOn() {
	for _, s := range v.Slices {
		for _, x := range s.Groups {
			v.setOff(x, false)
		}
	}
	v.on = -1
}

func (v *Vgpud) setOff(x *Group, off bool) {
	if x.Off == off {
		return
	}
	x.Off = off
	v.meter.Off(x.PID, off, int64(v.GPU.Now))
}

// takeTurns puts off all but the one whose turn it is.
func (v *Vgpud) takeTurns() {
	now := v.GPU.Now
	on := v.rota.Next(v.Plan.Turns, v.on, now-v.rotaAt)
	v.rotaAt = now
	if on == v.on && (on < 0 || v.isSet()) || !v.Budget.Afford(now, 2*share.CostDisable) {
		return
	}
	v.on = on
	v.set()
	v.Calls += 2
}

// set is two calls: off first.
func (v *Vgpud) set() {
	for _, off := range []bool{true, false} {
		v.each(func(x *Group, isOff bool) {
			if isOff == off {
				v.setOff(x, off)
			}
		})
	}
}

func (v *Vgpud) isSet() bool {
	set := true
	v.each(func(x *Group, isOff bool) { set = set && x.Off == isOff })
	return set
}

// each says of all groups whether they are to be off.
func (v *Vgpud) each(do func(x *Group, isOff bool)) {
	for i, s := range v.Slices {
		for _, x := range s.Groups {
			takes, mine := false, false
			for k, t := range v.Plan.Turns {
				if t.Tenant == i && (t.PID == 0 || t.PID == x.PID) {
					takes, mine = true, mine || k == v.on
				}
			}
			do(x, takes && !mine)
		}
	}
}

func (v *Vgpud) judge() {}

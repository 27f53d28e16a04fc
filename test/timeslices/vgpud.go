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
	Hold   *share.Hold   // has a cap
	Extra  share.Seen    // what is seen of its processes beside what they do on the GPU

	Account share.Account
	Percent float64

	planned time.Duration
	present share.Present
	held    held
	demand  share.Demand
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
	First     time.Duration // when somebody was

	meter   share.Meter
	window  share.Window
	rule    share.Rule
	rota    share.Rota
	judges  map[uint32]*share.Judge
	records []share.Switch
	tenants []share.Tenant

	on                                int // of Plan.Turns
	rotaAt, lookedAt, plannedAt, next time.Duration
	active, judgedAt                  time.Duration
	full                              bool
	period                            span              // of those who are held
	saves                             map[*Group][2]int // turns, and those that were no cut, at the last look
}

const (
	eachTurn = 10 * time.Millisecond
	eachLook = 100 * time.Millisecond
	eachPlan = 500 * time.Millisecond
)

// NewVgpud has what it needs to know of the slices. What it counts goes on from their accounts.
func NewVgpud(g *GPU, budget *share.Budget, slices ...*Slice) *Vgpud {
	v := &Vgpud{GPU: g, Slices: slices, Budget: budget, Condemned: map[uint32]share.Verdict{}, judges: map[uint32]*share.Judge{}, on: -1,
		rotaAt: g.Now, lookedAt: g.Now, plannedAt: g.Now, judgedAt: g.Now, active: g.Active, saves: map[*Group][2]int{}}
	for _, x := range g.Groups {
		v.saves[x] = [2]int{x.Turns, x.Turns - x.Cuts + x.Kept}
	}
	v.meter.Begin(int64(g.Now), 0)
	g.Log = func(s share.Switch) { v.records = append(v.records, s) }
	var was []time.Duration
	for _, s := range slices {
		was = append(was, s.planned)
	}
	v.rota.Begins = g.Now
	for i, s := range slices {
		s.present = share.Present{Key: uint64(i), Groups: len(s.Groups), Capped: s.Hold != nil}
		seen := map[uint32]bool{}
		for _, x := range s.Groups {
			if !seen[x.PID] {
				s.present.PIDs, seen[x.PID] = append(s.present.PIDs, x.PID), true
				v.judges[x.PID] = &share.Judge{}
				v.meter.Slice(x.PID, x.Slice, int64(v.GPU.Now))
			}
		}
		s.Account.Resume(g.Now)
		if s.Bucket != nil {
			s.Bucket.Resume(s.Bucket.Left)
		}
		v.resumeHold(s)
		v.tenants = append(v.tenants, share.Tenant{Share: s.Share, Most: s.cap(), Groups: len(s.Groups), PIDs: s.present.PIDs, Latency: s.Bucket != nil && s.Bucket.Pass(0, 0)})
	}
	v.rule.Resume(v.tenants, was)
	v.replan()
	return v
}

// Run goes on until a moment.
func (v *Vgpud) Run(until time.Duration) {
	for v.GPU.Now < until {
		v.GPU.Run(min(until, v.next, v.heldNext()))
		v.holdAll()
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
		s.held.off = false
		for _, x := range s.Groups {
			x.Off = false
		}
	}
}

func (v *Vgpud) step() {
	v.takeTurns()
	v.setSlices()
	if v.GPU.Now-v.lookedAt >= eachLook && v.Budget.Look(v.GPU.Now) {
		v.look()
		if v.GPU.Now-v.plannedAt >= eachPlan {
			v.replan()
			v.judge()
		}
	}
	v.next = v.GPU.Now + eachLook
	if len(v.Plan.Turns) > 0 {
		v.next = v.GPU.Now + eachTurn
	}
	if v.Late != nil {
		v.next += v.Late()
	}
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
	v.active, v.lookedAt, v.full = g.Active, g.Now, l.Active >= .97
	var all []share.Present
	for _, s := range v.Slices {
		all = append(all, s.present)
	}
	found := v.meter.Look(l, all)
	urgent := false
	for i, s := range v.Slices {
		s.Account.Look(g.Now, found[i])
		v.lookHold(s, found[i])
		if s.Bucket == nil {
			continue
		}
		if goes := s.Bucket.Pass(found[i].Gone, found[i].Busy); goes != v.tenants[i].Latency {
			v.tenants[i].Latency, urgent = goes, true
		}
	}
	v.level()
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
	v.rota.Correct(v.tenants, v.GPU.Now-v.plannedAt)
	v.window.Reset()
	v.plannedAt = v.GPU.Now
	v.plan()
}

func (v *Vgpud) plan() {
	v.Plan = v.rule.Next(v.tenants)
	v.setSlices()
	if len(v.Plan.Turns) == 0 {
		v.allOn()
	}
	v.takeTurns()
}

// setSlices makes as many calls as may be made now.
func (v *Vgpud) setSlices() {
	for i, s := range v.Slices {
		want := v.Plan.TimeSlices[i]
		if s.planned == 0 || float64(want) < .98*float64(s.planned) || float64(want) > 1.02*float64(s.planned) {
			s.planned = want
		}
		for _, x := range s.Groups {
			if x.Slice == s.planned || x.Off { // who is off has time until its turn
				continue
			}
			if !v.Budget.Afford(v.GPU.Now, share.CostSlice) {
				return
			}
			v.Calls++
			x.Slice = s.planned
			v.meter.Slice(x.PID, x.Slice, int64(v.GPU.Now))
		}
	}
}

func (v *Vgpud) allOn() {
	v.on = -1
	v.set()
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
	v.setSlices()
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
				if v.on >= 0 && t.Tenant == i && (t.PID == 0 || t.PID == x.PID) {
					takes, mine = true, mine || k == v.on
				}
			}
			do(x, takes && !mine || s.held.off)
		}
	}
}

// judge takes each turn that ended by itself for one that waited until its process was idle: nobody has seen what the driver counts there.
func (v *Vgpud) judge() {
	gone, total, wait := v.GPU.Now-v.judgedAt, 0.0, false
	v.judgedAt = v.GPU.Now
	for _, t := range v.tenants {
		if t.Groups > 0 {
			total += t.Share
		}
	}
	for _, t := range v.tenants {
		wait = wait || v.full && t.Groups > 0 && len(v.Plan.Turns) == 0 && t.Used < t.Share/total-.02
	}
	for i, s := range v.Slices {
		for _, pid := range s.present.PIDs {
			seen := s.Extra
			t := v.tenants[i]
			seen.Gone, seen.Used, seen.Due, seen.OthersWait = gone, t.Used, t.Share/max(total, t.Share), wait
			seen.Off, seen.RanOff = v.meter.RanOff(pid)
			seen.Overran = v.meter.Overran(pid)
			for _, x := range s.Groups {
				if x.PID == pid {
					v.seeGroup(x, &seen)
				}
			}
			if verdict := v.judges[pid].Look(seen); verdict != "" && v.Condemned[pid] == "" {
				v.Condemned[pid] = verdict
				if v.First == 0 {
					v.First = v.GPU.Now
				}
			}
		}
	}
}

func (v *Vgpud) seeGroup(x *Group, seen *share.Seen) {
	now, was := [2]int{x.Turns, x.Turns - x.Cuts + x.Kept}, v.saves[x]
	v.saves[x] = now
	seen.Saves, seen.SavesIdle = seen.Saves+uint64(now[0]-was[0]), seen.SavesIdle+uint64(now[1]-was[1])
	seen.Checked++
	if x.Cheat.Sets > 0 {
		seen.Changed++
	}
}

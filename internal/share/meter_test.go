// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

func metered(on uint32) (*Meter, *journal) {
	m := &Meter{}
	m.Begin(0, on)
	return m, &journal{to: m.Take}
}

var three = []Present{{Key: 1, PIDs: []uint32{7}, Groups: 1}, {Key: 2, PIDs: []uint32{8}, Groups: 1}, {Key: 3, PIDs: []uint32{9}, Groups: 1}}

func busy(found []Usage) (all []time.Duration) {
	for _, u := range found {
		all = append(all, u.Busy)
	}
	return all
}

func TestOneAloneHasWhatTheEngineDid(t *testing.T) {
	m, _ := metered(0)
	one := three[:1]
	if u := m.Look(Look{AtNS: 100e6, Active: .3, NoLog: true}, one)[0]; u.Busy != 30*ms || !u.Known || !u.Exact || u.Used != .3 {
		t.Errorf("%+v", u)
	}
	if u := m.Look(Look{AtNS: 200e6, Active: -1, NoLog: true}, one)[0]; u.Busy != 0 || u.Known {
		t.Errorf("nobody can say: %+v", u)
	}
	// The log is open and has no record of it, as it has none of one alone.
	if u := m.Look(Look{AtNS: 300e6, Active: .5}, one)[0]; u.Known {
		t.Errorf("nobody knows who was on: %+v", u)
	}
	m, _ = metered(7)
	if found := m.Look(Look{AtNS: 100e6, Active: .5}, three); found[0].Busy != 50*ms || !found[0].Exact || found[1].Busy != 0 {
		t.Errorf("%+v", found)
	}
	if found := m.Look(Look{AtNS: 200e6, Active: .4, NoLog: true}, three); found[0].Known {
		t.Errorf("three without a log: %+v", found)
	}
	if found := m.Look(Look{AtNS: 300e6, Active: .4, NoLog: true}, []Present{{Key: 1}}); !found[0].Known || found[0].Busy != 0 {
		t.Errorf("one without a group: %+v", found)
	}
}

// between plays turns of so many microseconds one after the other, each by the next of these.
func between(j *journal, fromUS int64, times int, lengthsUS []int64, pids ...uint32) (untilUS int64) {
	for range times {
		for i, pid := range pids {
			j.start(pid, fromUS+80)
			fromUS += 80 + lengthsUS[i]
			j.end(pid, fromUS)
		}
	}
	return fromUS
}

func TestWhereTheGPUIsFullTheLogSaysIt(t *testing.T) {
	m, j := metered(0)
	m.Slice(7, 3*ms, 0)
	m.Slice(8, 7*ms, 0)
	end := between(j, 0, 10, []int64{3145, 2060}, 7, 8) // cut, and ended by itself
	found := m.Look(Look{AtNS: end * usNS, Active: 1}, three)
	if want := []time.Duration{30 * ms, 20 * ms, 0}; !slices.Equal(busy(found), want) || !found[0].Exact {
		t.Errorf("%+v, want %v", found, want)
	}
	if found[0].Turns != 10 || found[0].Cuts != 10 || found[1].Turns != 10 || found[1].Cuts != 0 || found[0].Groups != 1 || found[2].Groups != 0 {
		t.Errorf("%+v", found)
	}
	w := Window{}
	w.Add(three, found)
	a, b, c := Tenant{}, Tenant{Cut: true}, Tenant{}
	w.Fill(1, &a)
	w.Fill(2, &b)
	w.Fill(3, &c)
	if !a.Cut || a.Left != 0 || b.Cut || b.Left != 1 || !c.Cut || c.Groups != 0 || !slices.Equal(b.PIDs, []uint32{8}) {
		t.Errorf("%+v %+v %+v", a, b, c)
	}
}

func TestASliceCountsFromWhenItWasSet(t *testing.T) {
	m, j := metered(0)
	m.Slice(7, ms, 0)
	end := between(j, 0, 5, []int64{1145, 2060}, 7, 8)
	m.Slice(7, 4*ms, end*usNS+1) // before the log is read
	if found := m.Look(Look{AtNS: end * usNS, Active: 1}, three); found[0].Cuts != 5 {
		t.Errorf("%+v", found[0])
	}
}

func TestWhereNobodyFillsItTheSumIsDivided(t *testing.T) {
	m, j := metered(0)
	end := between(j, 0, 10, []int64{6145, 2145}, 7, 8) // idle in most of it
	found := m.Look(Look{AtNS: end * usNS, Active: .4}, three)
	sum := time.Duration(.4 * float64(end) * float64(us))
	if got := found[0].Busy + found[1].Busy; got < sum-us || got > sum || found[0].Exact || !found[0].Known {
		t.Errorf("%+v of %v", found, sum)
	}
	if ratio := float64(found[0].Busy) / float64(found[1].Busy); ratio < 2.99 || ratio > 3.01 {
		t.Errorf("divided %v", ratio)
	}
	// One that is nobody's here has a part of it.
	end2 := between(j, end, 10, []int64{6145, 2145}, 7, 77)
	found = m.Look(Look{AtNS: end2 * usNS, Active: .4}, three)
	if want := sum * 3 / 4; found[0].Busy < want-100*us || found[0].Busy > want+100*us {
		t.Errorf("%v beside an untracked process, want %v", found[0].Busy, want)
	}
	// A moment without any work is known.
	if u := m.Look(Look{AtNS: (end2 + 1000) * usNS, Active: 0}, three)[0]; !u.Known || u.Busy != 0 {
		t.Errorf("%+v", u)
	}
}

func TestWithLostRecordsItIsNotExact(t *testing.T) {
	m, j := metered(0)
	end := between(j, 0, 5, []int64{3145, 2060}, 7, 8)
	j.serial += 3
	end = between(j, end+5000, 5, []int64{3145, 2060}, 7, 8)
	found := m.Look(Look{AtNS: end * usNS, Active: 1}, three)
	if found[0].Exact || !found[0].Known || found[0].Busy <= found[1].Busy {
		t.Errorf("%+v", found)
	}
	m.Drop(5)
	if u := m.Look(Look{AtNS: (end + 1000) * usNS, Active: 1}, three)[0]; u.Known {
		t.Errorf("%+v", u)
	}
	if u := m.Look(Look{AtNS: (end + 2000) * usNS, Active: -1}, three)[0]; !u.Known || u.Exact {
		t.Errorf("%+v", u)
	}
}

// Who is kept off has the work that it had, until its turn passes without any.
func TestWhoIsOffStillHasWork(t *testing.T) {
	m, j := metered(0)
	end := between(j, 0, 5, []int64{3145, 2060}, 7, 8)
	m.Off(8, true, end*usNS)
	for range 20 {
		end = between(j, end, 50, []int64{3145, 1060}, 7, 9)
		if found := m.Look(Look{AtNS: end * usNS, Active: 1}, three); found[1].Groups != 1 || !found[1].Off {
			t.Fatalf("%+v", found[1])
		}
	}
	m.Off(8, false, end*usNS)
	end = between(j, end, 25, []int64{3145, 1060}, 7, 9)
	m.Off(8, true, end*usNS)
	if found := m.Look(Look{AtNS: end*usNS + 1e6, Active: 1}, three); found[1].Groups != 0 {
		t.Errorf("its turn has passed: %+v", found[1])
	}
	if off, ran := m.RanOff(8); off < 3*time.Second || ran != 0 {
		t.Errorf("off %v, ran %v", off, ran)
	}
}

func TestWhoBeginsWhileOffIsSeen(t *testing.T) {
	m, j := metered(0)
	j.start(7, 0)
	m.Off(7, true, 100*ms.Nanoseconds())
	j.end(7, 100_500) // a turn that the call ended
	j.start(8, 100_600)
	j.end(8, 110_000)
	j.start(7, 110_100) // it has enabled itself
	j.end(7, 120_000)
	j.start(8, 120_100)
	m.Off(7, false, 200*ms.Nanoseconds())
	j.end(8, 200_050)
	j.start(7, 200_100)
	m.Look(Look{AtNS: 300e6, Active: 1}, three)
	if off, ran := m.RanOff(7); off != 100*ms || ran != 9900*us {
		t.Errorf("off %v, ran %v", off, ran)
	}
	if off, ran := m.RanOff(7); off != 0 || ran != 0 {
		t.Errorf("again: off %v, ran %v", off, ran)
	}
}

func TestAJobsGroupsAreThoseThatTookTurns(t *testing.T) {
	m, _ := metered(0)
	jobOf := []Present{{Key: 1, PIDs: []uint32{7, 8, 9}, Groups: 5}}
	serial := uint16(0)
	take := func(pid, context uint32, atUS int64, start bool) {
		serial++
		m.Take(Switch{AtNS: atUS * usNS, PID: pid, Context: context, Serial: serial, Start: start, End: !start})
	}
	for i, who := range []struct{ pid, context uint32 }{{7, 1}, {7, 2}, {8, 3}, {7, 1}} {
		take(who.pid, who.context, int64(i)*1000, true)
		take(who.pid, who.context, int64(i)*1000+900, false)
	}
	u := m.Look(Look{AtNS: 5e6, Active: 1}, jobOf)[0]
	if u.Groups != 3 || !slices.Equal(u.PIDs, []uint32{7, 8}) {
		t.Errorf("%+v", u)
	}
	if u := m.Look(Look{AtNS: 2e9, Active: 0}, jobOf)[0]; u.Groups != 0 || len(u.PIDs) != 0 {
		t.Errorf("a second later: %+v", u)
	}
}

// Records come late, are lost, and looks come when they like: no count goes back, and no time is counted twice.
func TestNoTimeIsCountedTwice(t *testing.T) {
	for seed := range uint64(300) {
		dice := rand.New(rand.NewPCG(seed, 4))
		m := &Meter{}
		m.Begin(0, 0)
		var waiting []Switch
		serial, clockNS, lookNS := uint16(dice.IntN(1<<16)), int64(0), int64(0)
		counted := time.Duration(0)
		for range 300 {
			pid := uint32(7 + dice.IntN(4)) // one is nobody's
			start := clockNS + int64(dice.IntN(100_000))
			end := start + int64(dice.IntN(8_000_000))
			for _, s := range []Switch{{AtNS: start, PID: pid, Start: true}, {AtNS: end, PID: pid, End: true}} {
				serial++
				s.Serial = serial
				if dice.IntN(200) > 0 {
					waiting = append(waiting, s)
				}
			}
			clockNS = end
			if dice.IntN(5) == 0 { // the newest come with the next look, though the clock is read now
				keep := min(dice.IntN(3), len(waiting))
				for _, s := range waiting[:len(waiting)-keep] {
					m.Take(s)
				}
				waiting = waiting[len(waiting)-keep:]
				active := []float64{-1, 1, 1, .99, .5, 0}[dice.IntN(6)]
				for _, u := range m.Look(Look{AtNS: clockNS, Active: active, NoLog: dice.IntN(9) == 0}, three) {
					if u.Busy < 0 || u.Used < 0 || u.Used > 1 || u.Gone != time.Duration(clockNS-lookNS) {
						t.Fatalf("seed %d: %+v", seed, u)
					}
					counted += u.Busy
				}
				lookNS = clockNS
				if counted > time.Duration(clockNS) {
					t.Fatalf("seed %d: %v of %v", seed, counted, time.Duration(clockNS))
				}
			}
		}
	}
}

// What came late is there with the next look.
func TestAnEndOlderThanTheLookIsMadeUpFor(t *testing.T) {
	m, j := metered(0)
	m.Slice(7, 50*ms, 0)
	m.Slice(8, 50*ms, 0)
	j.start(7, 0)
	first := m.Look(Look{AtNS: 100e6, Active: 1}, three)
	j.end(7, 60_145) // 40 ms before that look
	j.start(8, 60_145)
	second := m.Look(Look{AtNS: 120e6, Active: 1}, three)
	j.end(8, 200_290)
	third := m.Look(Look{AtNS: 200_290 * usNS, Active: 1}, three)
	had := []time.Duration{0, 0}
	for _, found := range [][]Usage{first, second, third} {
		had[0], had[1] = had[0]+found[0].Busy, had[1]+found[1].Busy
	}
	if second[0].Busy != 0 || second[1].Busy != 20*ms {
		t.Errorf("%+v", second)
	}
	// The first was given 40 ms too much, which the time has no room for a second time.
	if had[0] != 100*ms || had[1] < 100*ms-300*us || had[1] > 100*ms+300*us {
		t.Errorf("had %v", had)
	}
}

func TestNothingIsKeptOfWhoIsGone(t *testing.T) {
	m, j := metered(0)
	m.Slice(7, ms, 0)
	end := between(j, 0, 5, []int64{3145, 2060}, 7, 8)
	m.Off(7, true, end*usNS)
	m.Look(Look{AtNS: end * usNS, Active: 1}, three)
	if len(m.slices) != 1 || len(m.offs) != 1 || len(m.seen) != 2 || len(m.owed) != 3 {
		t.Errorf("%v %v %v %v", m.slices, m.offs, m.seen, m.owed)
	}
	m.Look(Look{AtNS: end*usNS + 1e6, Active: 0}, nil)
	m.Look(Look{AtNS: end*usNS + 3e9, Active: 0}, nil)
	if len(m.slices) != 0 || len(m.offs) != 0 || len(m.seen) != 0 || len(m.owed) != 0 {
		t.Errorf("%v %v %v %v", m.slices, m.offs, m.seen, m.owed)
	}
}

// One that had no turn, because it was off in some of the looks, is taken to be as it was.
func TestAWindowKnowsWhoWasOff(t *testing.T) {
	w, all := Window{}, three[:1]
	w.Add(all, []Usage{{Gone: 100 * ms, Known: true, Groups: 1, Off: true}})
	w.Add(all, []Usage{{Gone: 300 * ms, Known: true, Groups: 1, Used: .4}})
	w.Add(all, []Usage{{Gone: time.Second, Used: 1, Groups: 1}}) // nobody knows
	seen := Tenant{Cut: false, Used: 1}
	if w.Fill(1, &seen); seen.Cut || seen.Used < .299 || seen.Used > .301 || seen.Groups != 1 {
		t.Errorf("%+v", seen)
	}
	w.Reset()
	before := seen
	if w.Fill(1, &seen); seen.Used != before.Used {
		t.Errorf("%+v of a window without a look", seen)
	}
}

// A neighbour's many small kernels keep the engine at work by switches: a tenant is not charged with them.
func TestSwitchesOfOthersAreNotCharged(t *testing.T) {
	w := window{gone: 100 * ms, had: []time.Duration{20 * ms, 5 * ms}}
	used := make([]time.Duration, 2)
	if w.split(90*ms, used); used[0] != 25*ms || used[1] != 10*ms {
		t.Errorf("90 ms of the engine, 20 and 5 of residence: %v", used)
	}
	used = make([]time.Duration, 2)
	if w.split(10*ms, used); used[0] != 8*ms || used[1] != 2*ms {
		t.Errorf("10 ms of the engine: %v", used)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math/rand/v2"
	"testing"
	"time"
)

// In whatever time, one of the latency class goes first for one burst and its share of that time, and what it used in one look beyond.
func TestABucketBoundsWhoGoesFirst(t *testing.T) {
	for seed := range uint64(200) {
		dice := rand.New(rand.NewPCG(seed, 2))
		part, most := dice.Float64(), time.Duration(1+dice.IntN(int(200*ms)))
		b := NewBucket(part, 250*ms)
		var firsts, times []time.Duration // since the start, at each look
		first, at, goes := time.Duration(0), time.Duration(0), true
		for range 400 {
			gone := time.Duration(dice.Float64() * float64(most))
			used := time.Duration(dice.Float64() * float64(gone))
			if goes {
				first += used
			}
			at += gone
			goes = b.Pass(gone, used)
			firsts, times = append(firsts, first), append(times, at)
		}
		for i := range firsts {
			for j := i + 1; j < len(firsts); j++ {
				if had, may := firsts[j]-firsts[i], 250*ms+time.Duration(part*float64(times[j]-times[i]))+most; had > may {
					t.Fatalf("seed %d: went first for %v of %v", seed, had, times[j]-times[i])
				}
			}
		}
	}
}

func TestAnEmptyBucketIsFilledToTheHalf(t *testing.T) {
	b := NewBucket(.5, 200*ms)
	if !b.Pass(0, 199*ms) || b.Pass(0, ms) || b.Pass(198*ms, 0) || !b.Pass(2*ms, 0) {
		t.Errorf("%+v", b)
	}
	if b.Pass(time.Hour, 0); b.Left != 200*ms {
		t.Errorf("saved %v", b.Left)
	}
	if b.Pass(0, time.Hour); b.Left != -200*ms {
		t.Errorf("owes %v", b.Left)
	}
	for left, goes := range map[time.Duration]bool{time.Hour: true, 100 * ms: true, 99 * ms: false, -time.Hour: false} {
		b := NewBucket(.5, 200*ms)
		b.Resume(left)
		if b.Pass(0, 0) != goes || b.Left > 200*ms || b.Left < -200*ms {
			t.Errorf("%v: %+v", left, b)
		}
	}
}

func TestAllCallsTakeTwoPercentOfACore(t *testing.T) {
	for seed := range uint64(50) {
		dice := rand.New(rand.NewPCG(seed, 3))
		var b Budget
		spent, at := time.Duration(0), time.Duration(0)
		for range 20000 {
			at += time.Duration(dice.IntN(int(2 * ms)))
			if cost := []time.Duration{CostDisable, CostSlice}[dice.IntN(2)]; b.Afford(at, cost) {
				spent += cost
			}
			if b.Look(at) {
				spent += CostLook
			}
		}
		if most := time.Duration(.02*float64(at)) + 22*ms; spent > most || spent < most*9/10 {
			t.Errorf("seed %d: %v in %v", seed, spent, at)
		}
	}
}

func TestUndoingNeverWaits(t *testing.T) {
	var b Budget
	for b.Afford(0, CostDisable) {
	}
	b.Charge(0, 100*CostDisable)
	if b.Afford(time.Second, CostSlice) || !b.Look(0) {
		t.Error("what was undone cost nothing, or a look waits for it")
	}
	wait := b.Wait(time.Second)
	if b.Afford(time.Second+wait-3*us, CostSlice) || !b.Afford(time.Second+wait, CostSlice) {
		t.Errorf("waits %v", wait)
	}
}

func TestAnAccountNeverHasMoreThanTheTime(t *testing.T) {
	a := Account{}
	a.Resume(10 * time.Second) // the slice is new
	a.Look(11*time.Second, Usage{Busy: 400 * ms, Known: true, Exact: true})
	a.Look(12*time.Second, Usage{Known: false})
	if a.NotExact || a.Busy != 400*ms || a.Unknown != time.Second {
		t.Errorf("%+v", a)
	}
	a.Look(13*time.Second, Usage{Busy: ms, Known: true})
	a.Resume(20 * time.Second)
	if !a.NotExact || a.Unknown != 8*time.Second || a.Looked != 20*time.Second {
		t.Errorf("%+v", a)
	}
	a.Resume(time.Second) // the node has started anew
	if a.Unknown != 8*time.Second || a.Looked != time.Second {
		t.Errorf("%+v", a)
	}
}

func TestVerdicts(t *testing.T) {
	const half = 500 * ms
	quiet := Seen{Gone: half, Checked: 1}
	changed := Seen{Gone: half, Checked: 1, Changed: 1}
	ran := Seen{Gone: half, Off: 250 * ms, RanOff: 60 * ms}
	waits := Seen{Gone: half, Saves: 3, SavesIdle: 3, Overran: true, Used: .8, Due: .5, OthersWait: true}
	has := func(change func(*Seen)) Seen {
		s := waits
		change(&s)
		return s
	}
	hides := Seen{Gone: half, MemoryBytes: 1}
	for name, c := range map[string]struct {
		seen []Seen
		want Verdict
	}{
		"nothing":                       {[]Seen{quiet, quiet, quiet}, ""},
		"slice":                         {[]Seen{changed, changed}, SetsItsSlice},
		"slice once":                    {[]Seen{changed, quiet, changed}, ""},
		"slice, not read in between":    {[]Seen{changed, {Gone: half}, changed}, SetsItsSlice},
		"ran":                           {[]Seen{ran, ran}, RunsWhileOff},
		"ran once, then was never off":  {[]Seen{ran, quiet, ran}, RunsWhileOff},
		"ran once, then was off":        {[]Seen{ran, {Gone: half, Off: 250 * ms}, ran}, ""},
		"ran for as long as a call":     {[]Seen{{Gone: half, Off: 5 * ms, RanOff: 4 * ms}, {Gone: half, Off: 5 * ms, RanOff: 4 * ms}}, ""},
		"ran for a little of it":        {[]Seen{{Gone: half, Off: 400 * ms, RanOff: 6 * ms}, {Gone: half, Off: 400 * ms, RanOff: 6 * ms}}, ""},
		"waits":                         {[]Seen{waits, has(func(s *Seen) { s.Saves, s.SavesIdle = 0, 0 }), waits, waits}, WaitsForIdle},
		"waits twice":                   {[]Seen{waits, waits, quiet}, ""},
		"is cut like others":            {slicesOfSeen(5, has(func(s *Seen) { s.SavesIdle = 2 })), ""},
		"ends within its slice":         {slicesOfSeen(5, has(func(s *Seen) { s.Overran = false })), ""},
		"harms nobody":                  {slicesOfSeen(5, has(func(s *Seen) { s.OthersWait = false })), ""},
		"has no more than its part":     {slicesOfSeen(5, has(func(s *Seen) { s.Used = .54 })), ""},
		"groups":                        {slicesOfSeen(2, Seen{Gone: half, Unlisted: 1}), HasTooMany},
		"groups for a moment":           {[]Seen{{Gone: half, Unlisted: 1}, quiet, {Gone: half, Unlisted: 1}}, ""},
		"contexts":                      {slicesOfSeen(3, Seen{Gone: half, Made: 30}), MakesWithoutEnd},
		"many contexts at its start":    {append([]Seen{{Gone: half, Made: 60}}, slicesOfSeen(60, Seen{Gone: half, Made: 4})...), ""},
		"hides":                         {slicesOfSeen(5, hides), HidesItsHandles},
		"has memory and then a handle":  {append(slicesOfSeen(4, hides), Seen{Gone: half, MemoryBytes: 1, Handles: true}, hides, hides), ""},
		"one look that came late":       {[]Seen{hides, {Gone: time.Minute, MemoryBytes: 1}}, ""},
		"has a handle of another GPU":   {slicesOfSeen(9, Seen{Gone: half, MemoryBytes: 1, Handles: true}), ""},
		"memory of whoever has no more": {slicesOfSeen(9, Seen{Gone: half}), ""},
	} {
		var j Judge
		var got Verdict
		for _, s := range c.seen {
			if got = j.Look(s); got != "" {
				break
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func slicesOfSeen(n int, s Seen) (all []Seen) {
	for range n {
		all = append(all, s)
	}
	return all
}

func TestTheThirdTimeIsTheLast(t *testing.T) {
	for _, c := range []struct {
		site    Answer
		verdict Verdict
		frozen  int
		want    Answer
	}{
		{Log, SetsItsSlice, 9, Log}, {Freeze, SetsItsSlice, 0, Freeze}, {Freeze, SetsItsSlice, 1, Freeze}, {Freeze, SetsItsSlice, 2, Kill},
		{Kill, SetsItsSlice, 0, Kill},
		// Another user's process may have done it.
		{Log, RunsWhileOff, 9, Log}, {Freeze, RunsWhileOff, 9, Freeze}, {Kill, RunsWhileOff, 0, Freeze},
	} {
		if got := Answers(c.site, c.verdict, c.frozen); got != c.want {
			t.Errorf("%v after %d: %v", c.site, c.frozen, got)
		}
	}
}

// Who only wants to know leaves half of it to changes, and has it again when it was not spent.
func TestWhatIsSparedLeavesHalf(t *testing.T) {
	var b Budget
	now, asked := time.Hour, 0
	for b.Spare(now, CostSlice) {
		asked++
	}
	changed := 0
	for b.Afford(now, CostSlice) {
		changed++
	}
	if asked == 0 || changed < asked-1 {
		t.Errorf("%d were spared, and %d changes afforded after them", asked, changed)
	}
	if b.Spare(now, CostSlice) || !b.Spare(now+saved, CostSlice) {
		t.Error("it is spared without anything left, or not a second later")
	}
}

func TestKillsCount(t *testing.T) {
	for killed, want := range []time.Duration{0, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, 64 * time.Second, 64 * time.Second} {
		if got := AfterKills(killed); got != want {
			t.Errorf("after %d: %s, want %s", killed, got, want)
		}
	}
	if got := AfterKills(1 << 30); got != 64*time.Second {
		t.Errorf("after many: %s", got)
	}
}

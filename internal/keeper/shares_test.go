// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

func TestSharesAreKeptAmongThoseWhoAlwaysHaveWork(t *testing.T) {
	for _, shares := range [][]int{{30, 70}, {50, 50}, {20, 30, 50}, {10, 30, 60}, {25, 25, 25, 25}, {10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, {1, 99}} {
		var all []job
		for _, part := range shares {
			all = append(all, elastic(part, fills))
		}
		found := watch(t, 2*time.Second, 10*time.Second, all...)
		name := fmt.Sprint(shares)
		inProportion(t, name, found.had, all, 1)
		if sum(found.had) < 97 {
			t.Errorf("%s: %.1f in all", name, sum(found.had))
		}
		for i := range all {
			near(t, name+" counted", found.counted[i], found.had[i], 1)
		}
		if found.callsASecond > 0.1 {
			t.Errorf("%s: %.1f calls a second where nothing changes", name, found.callsASecond)
		}
	}
}

// A job has its share with any number of processes, whether or not half of them have work, beside one that always has and one that does not.
func TestAJobsShareIsTheJobs(t *testing.T) {
	for _, n := range []int{1, 4, 16, 64} {
		for _, half := range []bool{false, true} {
			for _, other := range []timeslices.Load{fills, {Work: ms, Host: 100 * us}} {
				many := elastic(50, slices.Repeat([]timeslices.Load{fills}, n)...)
				for i := (n + 1) / 2; half && i < n; i++ {
					many.loads[i] = waits
				}
				all := []job{many, elastic(50, other)}
				name := fmt.Sprintf("%d processes, half of them idle %v, beside %v", n, half, other)
				found := watch(t, 8*time.Second, 10*time.Second, all...)
				within, counted := 1., 1.
				if n > 4 && other != fills { // 35.5 to 50 seen, the count 1.1 off (docs/verified/time-from-outside.md)
					within, counted = 22, 2
				}
				if other == fills {
					inProportion(t, name, found.had, all, within)
				} else {
					near(t, name, found.had[1], 50, within)
				}
				near(t, name+" counted", found.counted[0], found.had[0], counted)
			}
		}
	}
	contexts := elastic(50, slices.Repeat([]timeslices.Load{fills}, 10)...)
	contexts.contexts = true
	all := []job{contexts, elastic(50, fills)}
	inProportion(t, "ten contexts", watch(t, 2*time.Second, 10*time.Second, all...).had, all, 1)
}

// Steps and pauses of all lengths, with half of the GPU: beside one, and beside two.
func TestWhoSynchronisesHasItsShare(t *testing.T) {
	for _, c := range []timeslices.Load{
		{Work: ms, Host: 100 * us}, {Work: 2 * ms, Host: 500 * us}, {Work: 4 * ms, Host: 500 * us}, {Work: 8 * ms, Host: 500 * us}, {Work: 10 * ms, Host: 500 * us},
		{Work: 13 * ms, Host: 500 * us}, {Work: 20 * ms, Host: 500 * us}, {Work: 40 * ms, Host: 500 * us}, {Work: 5 * ms, Host: 3 * ms, Varied: true},
	} {
		one := []job{elastic(50, c), elastic(50, fills)}
		found := watch(t, 5*time.Second, 10*time.Second, one...)
		near(t, fmt.Sprintf("%v beside one", c), found.had[0], 50, 1.2)
		near(t, "counted", found.counted[0], found.had[0], 1)
		two := []job{elastic(50, c), elastic(25, fills), elastic(25, fills)}
		found = watch(t, 5*time.Second, 10*time.Second, two...)
		near(t, fmt.Sprintf("%v beside two", c), found.had[0], 50, 1.5)
		near(t, "the two to each other", found.had[1], found.had[2], 3)
		if found.callsASecond > 28 {
			t.Errorf("%v beside two: %.1f calls a second", c, found.callsASecond)
		}
	}
}

// Steps of many milliseconds beside one that always has work: the others' slices are right from the second plan on.
func TestLongStepsHaveTheirPartSoon(t *testing.T) {
	all := []job{elastic(60, timeslices.Load{Work: 10700 * us, Host: 300 * us}), elastic(40, fills)}
	if found := watch(t, time.Second, 3*time.Second, all...); math.Abs(found.had[0]-60) > 1.5 {
		t.Errorf("from the first to the fourth second: %.1f", found.had)
	}
}

// Programs do small things when they begin, and then always have work: that they seemed to sleep is forgotten.
func TestWhoBeganWithSmallThingsIsNotTakenToSleep(t *testing.T) {
	begins := timeslices.Load{Work: 200 * us, Host: 5 * ms}
	for _, n := range []int{1, 4, 16, 64} {
		all := []job{elastic(50, slices.Repeat([]timeslices.Load{begins}, n)...), elastic(50, begins)}
		m := crowd(t, all...)
		m.play(1200 * ms)
		for i, x := range m.gpu.Groups {
			if x.Load = fills; i < n/2 {
				x.Load = waits
			}
		}
		m.play(2800 * ms)
		inProportion(t, fmt.Sprintf("%d processes, half of them idle", n), m.watch(10*time.Second).had, all, 1)
		if turns := len(m.k.gpus[uuid].plan.Turns); turns > 0 {
			t.Errorf("%d processes: %d turns where nobody sleeps", n, turns)
		}
	}
}

// Where all sleep, as programs of PyTorch's do, all bear what that costs, and nothing is wasted on who asks for less.
func TestAllWhoSleepHaveTheirParts(t *testing.T) {
	mlp, train := timeslices.Load{Work: 1750 * us, Host: 80 * us}, timeslices.Load{Work: 12 * ms, Host: 300 * us}
	for _, c := range []struct {
		load   timeslices.Load
		shares []int
		least  float64
		within float64
	}{
		{mlp, []int{30, 70}, 88, 2.5}, {mlp, []int{50, 50}, 93, 1.5}, {mlp, []int{20, 30, 50}, 87, 1.5}, {train, []int{30, 70}, 97, 1.5},
		{train, []int{50, 50}, 97, 1.5}, {train, []int{20, 30, 50}, 97, 1.5}, {timeslices.Load{Work: 5 * ms, Host: 100 * us}, []int{10, 30, 60}, 93, 1.5},
	} {
		var all []job
		for _, part := range c.shares {
			all = append(all, elastic(part, c.load))
		}
		found := watch(t, 8*time.Second, 10*time.Second, all...)
		name := fmt.Sprintf("%v %v", c.load, c.shares)
		inProportion(t, name, found.had, all, c.within)
		if sum(found.had) < c.least {
			t.Errorf("%s: %.1f in all", name, sum(found.had))
		}
	}
	half := timeslices.Load{Work: ms, Host: ms}
	if found := watch(t, 20*time.Second, 10*time.Second, elastic(30, half), elastic(70, half)); found.had[1] < 44 || sum(found.had) < 86 {
		t.Errorf("each asks for half: %.1f", found.had)
	}
}

// Requests at 25 a second beside one and more that fill the GPU. The machine's figures; what its p99 has beyond is of requests that come while a turn is changed,
// which is not played.
func TestTheLatencyClassGoesFirst(t *testing.T) {
	for _, c := range []struct {
		request time.Duration
		part    int
		p99     float64
	}{{1050 * us, 10, 1.35}, {5 * ms, 20, 5.28}, {19820 * us, 60, 20.10}} {
		for _, n := range []int{1, 2, 3, 9} {
			all := []job{urgent(c.part, timeslices.Load{Work: c.request, Host: 40*ms - c.request, Varied: true})}
			for range n {
				all = append(all, elastic((100-c.part)/n, fills))
			}
			m := crowd(t, all...)
			m.play(time.Second)
			found := m.watch(20 * time.Second)
			name := fmt.Sprintf("%v beside %d", c.request, n)
			near(t, name, quantile(m.gpu.Groups[0].Waits, .99), c.p99, .02*c.p99)
			inProportion(t, name, found.had[1:], all[1:], 1)
			if sum(found.had) < 97 {
				t.Errorf("%s: %.1f in all", name, sum(found.had))
			}
			if found.callsASecond > 21 {
				t.Errorf("%s: %.1f calls a second", name, found.callsASecond)
			}
		}
	}
}

// One of the latency class that would have it all has its share and some bursts more, whatever it does.
func TestNobodyStarvesBesideTheLatencyClass(t *testing.T) {
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 34))
		part := 5 + dice.IntN(60)
		greedy := []timeslices.Load{fills, {Work: ms, Host: 10 * us}, {Work: 20 * ms, Host: ms}, {Work: 3 * time.Second, Host: 2 * time.Second, Varied: true}}
		load, others := greedy[dice.IntN(len(greedy))], 1+dice.IntN(3)
		all := []job{urgent(100*part/(part+others*(100-part)), load)} // of them all
		for range others {
			all = append(all, elastic((100-all[0].percent)/others, fills))
		}
		found := watch(t, 3*time.Second, 10*time.Second, all...)
		if most := float64(all[0].percent) + 11; found.had[0] > most {
			t.Errorf("seed %d: has %.1f of %.1f", seed, found.had[0], most)
		}
		// Turns are begun and given up with its credit, some of them before all had theirs.
		inProportion(t, fmt.Sprintf("seed %d, the others", seed), found.had[1:], all[1:], 4)
	}
}

// Where several sleep with steps of all lengths, and each asks for more or less than its share, the rule is far from exact; but everybody has something.
func TestNobodyStarvesAmongMany(t *testing.T) {
	low, count := 0, 0
	for seed := range uint64(300) {
		dice := rand.New(rand.NewPCG(seed, 77))
		var all []job
		total := 0
		for i := range 2 + dice.IntN(4) {
			load := fills
			if dice.IntN(2) == 0 {
				load = honest[3+dice.IntN(len(honest)-5)]
			}
			all = append(all, elastic(5+dice.IntN(50), load))
			total += all[i].percent
		}
		found := watch(t, 10*time.Second, 15*time.Second, all...)
		for i, j := range all {
			wants := 100.0
			if load := j.loads[0]; load != fills {
				wants = 100 * float64(load.Work) / float64(load.Work+load.Host)
			}
			part := found.had[i] / min(wants, 100*float64(j.percent)/float64(total))
			if count++; part < .5 {
				low++
			}
			if part < .08 {
				t.Errorf("seed %d: slice %d has %.1f of what it asks for or is due", seed, i, 100*part)
			}
		}
	}
	if 100*low > 6*count {
		t.Errorf("%d of %d have less than half of what they ask for or are due", low, count)
	}
}

func TestANodesCallsStayBelowTheirPart(t *testing.T) {
	jobs := []job{elastic(20, timeslices.Load{Work: ms, Host: ms}), elastic(30, fills), elastic(50, fills)}
	var all []*machine
	for range 8 { // GPUs, each of which would have 20 calls a second
		all = append(all, crowd(t, jobs...))
	}
	budget, calls := share.Budget{}, 0 // of the node
	const seconds = 20
	for range seconds * 100 {
		for _, m := range all {
			m.k.budget = budget
			m.play(10 * ms)
			budget = m.k.budget
		}
	}
	for _, m := range all {
		calls += m.made()
		had := []float64{float64(m.ran()[1]), float64(m.ran()[2])}
		inProportion(t, "with fewer calls", had, jobs[1:], 6)
	}
	if spent := float64(calls) * share.CostSlice.Seconds(); spent/seconds > .02 || calls < 8*seconds {
		t.Errorf("%d calls", calls)
	}
}

// vgpud is killed each second for half an hour. What is off then is on again within 50 ms, by its parent, which the simulation leaves to chance.
func TestHalfAnHourOfDeaths(t *testing.T) {
	for _, c := range []struct {
		name   string
		all    []job
		within float64
		from   int // of these the shares are held to each other
	}{
		{"always", []job{elastic(30, fills), elastic(70, fills)}, 1, 0},
		{"a job of four", []job{elastic(30, fills, fills, fills, fills), elastic(70, fills)}, 1, 0},
		{"one synchronises", []job{elastic(30, timeslices.Load{Work: ms, Host: 100 * us}), elastic(30, fills), elastic(40, fills)}, 2, 1},
		{"latency", []job{urgent(20, timeslices.Load{Work: 5 * ms, Host: 35 * ms, Varied: true}), elastic(30, fills), elastic(50, fills)}, 5, 1},
	} {
		m, dice := crowd(t, c.all...), rand.New(rand.NewPCG(1, 35))
		from := m.gpu.Now
		was := make([]ledger.TimeDevice, len(c.all))
		for m.gpu.Now < from+30*time.Minute {
			m.play(time.Second)
			if condemned := m.condemned(); len(condemned) > 0 {
				t.Fatalf("%s: %v", c.name, condemned)
			}
			for i := range c.all {
				now := m.time(uint32(i + 1))
				if now.BusyNs < was[i].BusyNs || now.UnknownNs < was[i].UnknownNs || time.Duration(now.BusyNs+now.UnknownNs) > m.gpu.Now-from {
					t.Fatalf("%s: %+v after %+v, at %v", c.name, now, was[i], m.gpu.Now)
				}
				was[i] = now
			}
			m.dies(time.Duration(dice.IntN(int(50*ms))), time.Duration(dice.IntN(int(300*ms))))
		}
		var had []float64
		for i, ran := range m.ran() {
			had = append(had, percent(ran, m.gpu.Now-from))
			// What it had while nobody counted is not counted, and nothing else is missing.
			known := m.gpu.Now - from - time.Duration(was[i].UnknownNs)
			near(t, c.name+": counted of the time that was", percent(time.Duration(was[i].BusyNs), known), had[i], 7)
		}
		inProportion(t, c.name, had[c.from:], c.all[c.from:], c.within)
		t.Logf("%s: %.1f", c.name, had)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

var fills = Load{Work: 1000 * time.Hour}

// job has a process for each load, with the slice that libcuda gives.
func job(pid uint32, part float64, loads ...Load) *Slice {
	s := &Slice{Share: part}
	for i, l := range loads {
		s.Groups = append(s.Groups, &Group{Load: l, Slice: 2048 * us, PID: pid + uint32(i)})
	}
	return s
}

// urgent is one of the latency class.
func urgent(pid uint32, part float64, load Load) *Slice {
	s, b := job(pid, part, load), share.NewBucket(part/100, 250*ms)
	s.Bucket = &b
	return s
}

func gpuOf(all ...*Slice) *GPU {
	var groups []*Group
	for _, s := range all {
		groups = append(groups, s.Groups...)
	}
	return NewGPU(change, groups...)
}

func (s *Slice) busy() (all time.Duration) {
	for _, x := range s.Groups {
		all += x.Busy
	}
	return all
}

// seen is what each had in a while after a few seconds, in percent, and what vgpud counted.
type seen struct {
	had, counted []float64
	callsASecond float64
	vgpud        *Vgpud
}

func watch(after, for_ time.Duration, all ...*Slice) seen {
	g := gpuOf(all...)
	v := NewVgpud(g, &share.Budget{}, all...)
	v.Run(after)
	var busy, counted []time.Duration
	for _, s := range all {
		busy, counted = append(busy, s.busy()), append(counted, s.Account.Busy)
		for _, x := range s.Groups {
			x.Waits = nil
		}
	}
	at, calls := g.Now, v.Calls
	v.Run(at + for_)
	found := seen{callsASecond: float64(v.Calls-calls) / (g.Now - at).Seconds(), vgpud: v}
	for i, s := range all {
		found.had = append(found.had, percent(s.busy()-busy[i], g.Now-at))
		found.counted = append(found.counted, percent(s.Account.Busy-counted[i], g.Now-at))
	}
	return found
}

func sum(all []float64) (together float64) {
	for _, x := range all {
		together += x
	}
	return together
}

// inProportion holds what these had to their shares of it.
func inProportion(t *testing.T, name string, had []float64, all []*Slice, within float64) {
	t.Helper()
	shares := 0.0
	for _, s := range all {
		shares += s.Share
	}
	for i, s := range all {
		if got, want := 100*had[i]/sum(had), 100*s.Share/shares; math.Abs(got-want) > within {
			t.Errorf("%s: slice %d has %.1f of what all have, want %.1f", name, i, got, want)
		}
	}
}

func TestSharesAreKeptAmongThoseWhoAlwaysHaveWork(t *testing.T) {
	for _, shares := range [][]float64{{30, 70}, {50, 50}, {20, 30, 50}, {10, 30, 60}, {25, 25, 25, 25}, {10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, {1, 99}} {
		var all []*Slice
		for i, part := range shares {
			all = append(all, job(uint32(i+1), part, fills))
		}
		found := watch(2*time.Second, 10*time.Second, all...)
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
	waits := Load{Work: us, Host: 1000 * time.Hour}
	for _, n := range []int{1, 4, 16, 64} {
		for _, half := range []bool{false, true} {
			for _, other := range []Load{fills, {Work: ms, Host: 100 * us}} {
				many := job(1000, 50, slices.Repeat([]Load{fills}, n)...)
				for _, x := range many.Groups[(n+1)/2:] {
					if half {
						x.Load = waits
					}
				}
				all := []*Slice{many, job(1, 50, other)}
				name := fmt.Sprintf("%d processes, half of them idle %v, beside %v", n, half, other)
				found := watch(8*time.Second, 10*time.Second, all...)
				if other == fills {
					inProportion(t, name, found.had, all, 1)
				} else {
					near(t, name, found.had[1], 50, 1)
				}
				near(t, name+" counted", found.counted[0], found.had[0], 1)
			}
		}
	}
	contexts := job(1000, 50, slices.Repeat([]Load{fills}, 10)...)
	for _, x := range contexts.Groups {
		x.PID = 1000
	}
	all := []*Slice{contexts, job(1, 50, fills)}
	inProportion(t, "ten contexts", watch(2*time.Second, 10*time.Second, all...).had, all, 1)
}

// Steps and pauses of all lengths, with half of the GPU: beside one, and beside two.
func TestWhoSynchronisesHasItsShare(t *testing.T) {
	for _, c := range []Load{
		{Work: ms, Host: 100 * us}, {Work: 2 * ms, Host: 500 * us}, {Work: 4 * ms, Host: 500 * us}, {Work: 8 * ms, Host: 500 * us}, {Work: 10 * ms, Host: 500 * us},
		{Work: 13 * ms, Host: 500 * us}, {Work: 20 * ms, Host: 500 * us}, {Work: 40 * ms, Host: 500 * us}, {Work: 5 * ms, Host: 3 * ms, Varied: true},
	} {
		one := []*Slice{job(1, 50, c), job(2, 50, fills)}
		found := watch(5*time.Second, 10*time.Second, one...)
		near(t, fmt.Sprintf("%v beside one", c), found.had[0], 50, 1.2)
		near(t, "counted", found.counted[0], found.had[0], 1)
		two := []*Slice{job(1, 50, c), job(2, 25, fills), job(3, 25, fills)}
		found = watch(5*time.Second, 10*time.Second, two...)
		near(t, fmt.Sprintf("%v beside two", c), found.had[0], 50, 1.2)
		near(t, "the two to each other", found.had[1], found.had[2], 3)
		if found.callsASecond > 28 {
			t.Errorf("%v beside two: %.1f calls a second", c, found.callsASecond)
		}
	}
}

// Steps of many milliseconds beside one that always has work: the others' slices are right from the second plan on.
func TestLongStepsHaveTheirPartSoon(t *testing.T) {
	all := []*Slice{job(1, 60, Load{Work: 10700 * us, Host: 300 * us}), job(2, 40, fills)}
	if found := watch(time.Second, 3*time.Second, all...); math.Abs(found.had[0]-60) > 1.5 {
		t.Errorf("from the first to the fourth second: %.1f", found.had)
	}
}

// Programs do small things when they begin, and then always have work: that they seemed to sleep is forgotten.
func TestWhoBeganWithSmallThingsIsNotTakenToSleep(t *testing.T) {
	begins, waits := Load{Work: 200 * us, Host: 5 * ms}, Load{Work: us, Host: 1000 * time.Hour}
	for _, n := range []int{1, 4, 16, 64} {
		all := []*Slice{job(1000, 50, slices.Repeat([]Load{begins}, n)...), job(1, 50, begins)}
		g := gpuOf(all...)
		v := NewVgpud(g, &share.Budget{}, all...)
		v.Run(1200 * ms)
		for i, x := range g.Groups {
			if x.Load = fills; i < n/2 {
				x.Load = waits
			}
		}
		v.Run(4 * time.Second)
		before := []time.Duration{all[0].busy(), all[1].busy()}
		v.Run(14 * time.Second)
		had := []float64{percent(all[0].busy()-before[0], 10*time.Second), percent(all[1].busy()-before[1], 10*time.Second)}
		inProportion(t, fmt.Sprintf("%d processes, half of them idle", n), had, all, 1)
		if len(v.Plan.Turns) > 0 {
			t.Errorf("%d processes: %d turns where nobody sleeps", n, len(v.Plan.Turns))
		}
	}
}

// Where all sleep, as programs of PyTorch's do, all bear what that costs, and nothing is wasted on who asks for less.
func TestAllWhoSleepHaveTheirParts(t *testing.T) {
	mlp, train := Load{Work: 1750 * us, Host: 80 * us}, Load{Work: 12 * ms, Host: 300 * us}
	for _, c := range []struct {
		load   Load
		shares []float64
		least  float64
	}{
		{mlp, []float64{30, 70}, 88}, {mlp, []float64{50, 50}, 93}, {mlp, []float64{20, 30, 50}, 87}, {train, []float64{30, 70}, 97}, {train, []float64{50, 50}, 97},
		{train, []float64{20, 30, 50}, 97}, {Load{Work: 5 * ms, Host: 100 * us}, []float64{10, 30, 60}, 93},
	} {
		var all []*Slice
		for i, part := range c.shares {
			all = append(all, job(uint32(i+1), part, c.load))
		}
		found := watch(8*time.Second, 10*time.Second, all...)
		name := fmt.Sprintf("%v %v", c.load, c.shares)
		inProportion(t, name, found.had, all, 1.5)
		if sum(found.had) < c.least {
			t.Errorf("%s: %.1f in all", name, sum(found.had))
		}
	}
	half := Load{Work: ms, Host: ms}
	if found := watch(20*time.Second, 10*time.Second, job(1, 30, half), job(2, 70, half)); found.had[1] < 44 || sum(found.had) < 86 {
		t.Errorf("each asks for half: %.1f", found.had)
	}
}

// Requests at 25 a second beside one and more that fill the GPU. The machine's figures; what its p99 has beyond is of requests that come while a turn is changed,
// which is not played.
func TestTheLatencyClassGoesFirst(t *testing.T) {
	for _, c := range []struct {
		request time.Duration
		part    float64
		p99     float64
	}{{1050 * us, 10, 1.35}, {5 * ms, 20, 5.28}, {19820 * us, 60, 20.10}} {
		for _, n := range []int{1, 2, 3, 9} {
			all := []*Slice{urgent(1, c.part, Load{Work: c.request, Host: 40*ms - c.request, Varied: true})}
			for i := range n {
				all = append(all, job(uint32(i+2), (100-c.part)/float64(n), fills))
			}
			found := watch(time.Second, 20*time.Second, all...)
			name := fmt.Sprintf("%v beside %d", c.request, n)
			near(t, name, quantile(all[0].Groups[0].Waits, .99), c.p99, .02*c.p99)
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

// One of the latency class that would have it all has its share and one burst more, whatever it does.
func TestNobodyStarvesBesideTheLatencyClass(t *testing.T) {
	for seed := range uint64(60) {
		dice := rand.New(rand.NewPCG(seed, 34))
		part := float64(5 + dice.IntN(60))
		greedy := []Load{fills, {Work: ms, Host: 10 * us}, {Work: 20 * ms, Host: ms}, {Work: 3 * time.Second, Host: 2 * time.Second, Varied: true}}
		all := []*Slice{urgent(1, part, greedy[dice.IntN(len(greedy))])}
		for i := range 1 + dice.IntN(3) {
			all = append(all, job(uint32(i+2), 100-part, fills))
		}
		shares := 0.0
		for _, s := range all {
			shares += s.Share
		}
		all[0].Bucket.Share = part / shares
		found := watch(3*time.Second, 10*time.Second, all...)
		if most := 100*part/shares + 6; found.had[0] > most {
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
		var all []*Slice
		total := 0.0
		for i := range 2 + dice.IntN(4) {
			load := fills
			if dice.IntN(2) == 0 {
				load = honest[3+dice.IntN(len(honest)-5)]
			}
			all = append(all, job(uint32(i+1), float64(5+dice.IntN(50)), load))
			total += all[i].Share
		}
		found := watch(10*time.Second, 15*time.Second, all...)
		for i, s := range all {
			wants := 100.0
			if load := s.Groups[0].Load; load != fills {
				wants = 100 * float64(load.Work) / float64(load.Work+load.Host)
			}
			part := found.had[i] / min(wants, 100*s.Share/total)
			if count++; part < .5 {
				low++
			}
			if part < .12 {
				t.Errorf("seed %d: slice %d has %.1f of what it asks for or is due", seed, i, 100*part)
			}
		}
	}
	if 100*low > 6*count {
		t.Errorf("%d of %d have less than half of what they ask for or are due", low, count)
	}
}

func TestANodesCallsStayBelowTheirPart(t *testing.T) {
	var all []*Vgpud
	budget := &share.Budget{}
	for range 8 { // GPUs, each of which would have 20 calls a second
		s := []*Slice{job(1, 20, Load{Work: ms, Host: ms}), job(2, 30, fills), job(3, 50, fills)}
		all = append(all, NewVgpud(gpuOf(s...), budget, s...))
	}
	const seconds = 20
	for at := time.Duration(0); at < seconds*time.Second; at += 10 * ms {
		for _, v := range all {
			v.Run(at)
		}
	}
	calls := 0
	for _, v := range all {
		calls += v.Calls
		had := []float64{percent(v.Slices[1].busy(), v.GPU.Now), percent(v.Slices[2].busy(), v.GPU.Now)}
		inProportion(t, "with fewer calls", had, v.Slices[1:], 6)
	}
	if spent := float64(calls) * share.CostSlice.Seconds(); spent/seconds > .02 || calls < 8*seconds {
		t.Errorf("%d calls", calls)
	}
}

// vgpud is killed each second for an hour. What is off then is on again within 50 ms, by its parent, which the simulation leaves to chance.
func TestAnHourOfDeaths(t *testing.T) {
	for _, c := range []struct {
		name   string
		all    []*Slice
		within float64
		from   int // of these the shares are held to each other
	}{
		{"always", []*Slice{job(1, 30, fills), job(2, 70, fills)}, 1, 0},
		{"a job of four", []*Slice{job(1, 30, fills, fills, fills, fills), job(9, 70, fills)}, 1, 0},
		{"one synchronises", []*Slice{job(1, 30, Load{Work: ms, Host: 100 * us}), job(2, 30, fills), job(3, 40, fills)}, 1, 1},
		{"latency", []*Slice{urgent(1, 20, Load{Work: 5 * ms, Host: 35 * ms, Varied: true}), job(2, 30, fills), job(3, 50, fills)}, 1, 1},
	} {
		dice := rand.New(rand.NewPCG(1, 35))
		g, budget := gpuOf(c.all...), &share.Budget{}
		was := make([]share.Account, len(c.all))
		for g.Now < time.Hour {
			v := NewVgpud(g, budget, c.all...)
			v.Run(g.Now + time.Second)
			if len(v.Condemned) > 0 {
				t.Fatalf("%s: %v", c.name, v.Condemned)
			}
			v.Die(time.Duration(dice.IntN(int(50 * ms))))
			for i, s := range c.all {
				if s.Account.Busy < was[i].Busy || s.Account.Unknown < was[i].Unknown || s.Account.Busy+s.Account.Unknown > g.Now {
					t.Fatalf("%s: %+v after %+v, at %v", c.name, s.Account, was[i], g.Now)
				}
				was[i] = s.Account
			}
			g.Run(g.Now + time.Duration(dice.IntN(int(300*ms))))
		}
		var had []float64
		for _, s := range c.all {
			had = append(had, percent(s.busy(), g.Now))
			// What it had while nobody counted is not counted, and nothing else is missing.
			known := g.Now - s.Account.Unknown
			near(t, c.name+": counted of the time that was", percent(s.Account.Busy, known), had[len(had)-1], 7)
		}
		inProportion(t, c.name, had[c.from:], c.all[c.from:], c.within)
		t.Logf("%s: %.1f", c.name, had)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"slices"
	"testing"
	"time"
)

const (
	us = time.Microsecond
	ms = time.Millisecond
)

func TestWeightsOfSlicesWithAndWithoutCaps(t *testing.T) {
	for _, c := range []struct {
		percents []int
		want     []float64
	}{
		{[]int{30, 70}, []float64{30, 70}},
		{[]int{30, 0, 100}, []float64{30, 35, 35}},
		{[]int{0, 0, 0, 0}, []float64{25, 25, 25, 25}},
		{[]int{60, 60, 0}, []float64{60, 60, 0}},
		{nil, []float64{}},
	} {
		if got := Weights(c.percents); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.percents, got, c.want)
		}
	}
}

func slicesOf(t *testing.T, r *Rule, want []time.Duration, tenants ...Tenant) Plan {
	t.Helper()
	p := r.Next(tenants)
	for i := range want {
		if math.Abs(float64(p.TimeSlices[i]-want[i])) > 0.01*float64(want[i]) {
			t.Errorf("slices %v, want %v", p.TimeSlices, want)
			break
		}
	}
	return p
}

func always(part float64, groups int) Tenant {
	return Tenant{Share: part, Groups: groups, Cut: true, Used: 0.3}
}

func TestRoundsAreDividedAmongThoseWithWork(t *testing.T) {
	var r Rule
	slicesOf(t, &r, []time.Duration{6 * ms, 14 * ms}, always(30, 1), always(70, 1))
	slicesOf(t, &r, []time.Duration{6 * ms, 6 * ms, 12 * ms}, always(1, 1), always(1, 1), always(2, 1))
	slicesOf(t, &r, []time.Duration{2500 * us, 10 * ms}, always(50, 4), always(50, 1))
	slicesOf(t, &r, []time.Duration{ms, 16 * ms}, always(50, 16), always(50, 1))
	slicesOf(t, &r, []time.Duration{50 * ms / 64, 50 * ms}, always(50, 64), always(50, 1))
	slicesOf(t, &r, []time.Duration{100 * us, 20 * ms}, always(0, 1), always(60, 1))
	slicesOf(t, &r, []time.Duration{100 * us, 100 * us}, always(0, 1), always(0, 1))
	// One without work does not lengthen the round, and finds its slice when it has some.
	slicesOf(t, &r, []time.Duration{6 * ms, 14 * ms, 20 * ms}, always(30, 1), always(70, 1), Tenant{Share: 100})
	if p := r.Next(nil); len(p.TimeSlices) != 0 || len(p.Turns) != 0 {
		t.Errorf("a plan for nobody: %v", p)
	}
}

// Who uses less than its share because the library holds it there does not cost its neighbours anything.
func TestWhoIsHeldElsewhereIsNotBehind(t *testing.T) {
	capped := Tenant{Share: 30, Most: .3, Groups: 1, Used: .3}
	var r Rule
	slicesOf(t, &r, []time.Duration{20 * ms * 3 / 8, 20 * ms * 5 / 8}, capped, always(50, 1))
	capped.Most = 0
	slicesOf(t, &r, []time.Duration{longSlice, 2 * ms}, capped, always(50, 1))
}

func TestWhoIsIdleTakesNoTurn(t *testing.T) {
	sleeper := Tenant{Share: 40, Groups: 1, Used: .1}
	var r Rule
	p := r.Next([]Tenant{sleeper, always(30, 1), {Share: 30}})
	if len(p.Turns) != 0 || p.TimeSlices[1] != 2*ms {
		t.Errorf("beside one: %v", p)
	}
	many := always(30, 3)
	many.PIDs = []uint32{7, 8, 9}
	p = r.Next([]Tenant{sleeper, always(30, 1), many})
	want := []Turn{{1, 0, 200 * ms}, {2, 7, 200 * ms / 3}, {2, 8, 200 * ms / 3}, {2, 9, 200 * ms / 3}}
	if !slices.Equal(p.Turns, want) {
		t.Errorf("turns %v, want %v", p.Turns, want)
	}
}

func TestTheLatencyClassHasTheOthersCutShort(t *testing.T) {
	latency := Tenant{Share: 20, Groups: 1, Latency: true}
	var r Rule
	if p := slicesOf(t, &r, []time.Duration{100 * ms, 50 * us}, latency, always(80, 1)); len(p.Turns) != 0 {
		t.Errorf("turns of one: %v", p.Turns)
	}
	p := slicesOf(t, &r, []time.Duration{100 * ms, 50 * us, 50 * us}, latency, always(30, 1), always(50, 1))
	if want := []Turn{{1, 0, 75 * ms}, {2, 0, 125 * ms}}; !slices.Equal(p.Turns, want) {
		t.Errorf("turns %v, want %v", p.Turns, want)
	}
	latency.Latency = false
	latency.Cut = true
	slicesOf(t, &r, []time.Duration{4 * ms, 16 * ms}, latency, always(80, 1))
	latency.Groups, latency.Latency = 0, true // idle: it needs nothing
	slicesOf(t, &r, []time.Duration{0, 20 * ms}[1:], always(80, 1), latency)
}

func TestARuleGoesOnAfterADeath(t *testing.T) {
	tenants := []Tenant{{Share: 30, Groups: 1}, {Share: 30, Groups: 1}, {Share: 40, Groups: 1}}
	var r Rule
	r.Resume(tenants, []time.Duration{longSlice, 700 * us, 700 * us})
	if p := slicesOf(t, &r, []time.Duration{longSlice, 700 * us, 700 * us}, tenants...); len(p.Turns) != 2 {
		t.Errorf("turns %v", p.Turns)
	}
	r.Resume(tenants, []time.Duration{6 * ms, 6 * ms, 8 * ms})
	slicesOf(t, &r, []time.Duration{7200 * us, 7200 * us, 9600 * us}, tenants...)
	r.Resume(tenants, []time.Duration{longSlice, longSlice, 0})
	for i := range tenants {
		tenants[i].Cut = true
	}
	slicesOf(t, &r, []time.Duration{7200 * us, 7200 * us, 9600 * us}, tenants...)
	r.Resume(tenants, make([]time.Duration, 3)) // none was set
	slicesOf(t, &r, []time.Duration{7200 * us, 7200 * us, 9600 * us}, tenants...)
}

func TestWhoAsksForLessIsNotBehind(t *testing.T) {
	light := Tenant{Share: 50, Groups: 1, Used: .08, Step: 300 * us, Pause: 30 * ms, Left: 1}
	var r Rule
	slicesOf(t, &r, []time.Duration{10 * ms, 10 * ms}, always(50, 1), always(50, 1))
	light.Used = .0095 // of 0.99 %, as its pauses are its own
	slicesOf(t, &r, []time.Duration{10 * ms, 10 * ms}, light, always(50, 1))
	job := light // of two processes it asks for twice as much
	job.PIDs, job.Groups = []uint32{7, 8}, 2
	slicesOf(t, &r, []time.Duration{longSlice / 2, 2 * ms}, job, always(50, 1))
	r = Rule{}
	slicesOf(t, &r, []time.Duration{10 * ms, 10 * ms}, always(50, 1), always(50, 1))
	light.Pause = 11 * ms // it may be waiting
	slicesOf(t, &r, []time.Duration{longSlice, 2 * ms}, light, always(50, 1))
}

// One needs the others short, the other has too much because they are: it takes turns with them.
func TestWhoHasTooMuchTakesItsTurn(t *testing.T) {
	var r Rule
	tenants := []Tenant{{Share: 40, Groups: 1, Used: .2, Step: ms, Pause: 3 * ms}, {Share: 20, Groups: 1, Used: .5, Step: 10 * ms, Pause: ms}, always(40, 1)}
	p := r.Next(tenants)
	if want := []Turn{{1, 0, 200 * ms / 3}, {2, 0, 400 * ms / 3}}; !slices.Equal(p.Turns, want) || p.TimeSlices[0] != longSlice {
		t.Errorf("%v, want turns %v", p, want)
	}
	tenants[1].Used = .05 // and is let go when it has far too little
	if p := r.Next(tenants); len(p.Turns) != 0 || p.TimeSlices[1] != longSlice {
		t.Errorf("%v", p)
	}
}

func TestWhoAlwaysHasWorkKeepsHalf(t *testing.T) {
	var r Rule
	greedy := Tenant{Share: 50, Groups: 1, Used: .3}
	slicesOf(t, &r, []time.Duration{longSlice, 2 * ms}, greedy, always(50, 1))
	slicesOf(t, &r, []time.Duration{longSlice, ms}, greedy, always(50, 1))
	poor := always(50, 1)
	poor.Used = .2
	slicesOf(t, &r, []time.Duration{longSlice, 1500 * us}, greedy, poor)
}

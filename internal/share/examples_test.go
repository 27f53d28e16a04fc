// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"testing"
	"time"
)

// The numbers of README.md that no other test has.

func isNear(had, want time.Duration) bool { return max(had-want, want-had) <= want/200 }

func TestASleeperShortensTheOther(t *testing.T) {
	var r Rule
	for _, window := range []struct {
		used  float64
		other time.Duration
	}{{.35, 7500 * us}, {.37, 6600 * us}, {.39, 6336 * us}, {.42, 6843 * us}, {.40, 6843 * us}} {
		sleeper := Tenant{Share: 40, Groups: 1, Used: window.used, Step: 5 * ms, Pause: 5 * ms, Left: 1}
		other := Tenant{Share: 60, Groups: 1, Used: 1 - window.used, Cut: true}
		p := r.Next([]Tenant{sleeper, other})
		if p.TimeSlices[0] != 100*ms || !isNear(p.TimeSlices[1], window.other) || len(p.Turns) != 0 {
			t.Errorf("the sleeper used %v: %v, want %v", window.used, p, window.other)
		}
	}
}

func TestACapEndsTurns(t *testing.T) {
	for _, c := range []struct {
		capped, turns int
		other         time.Duration
	}{{-1, 2, 100 * ms}, {0, 2, 100 * ms / 3}, {1, 0, 100 * ms / 3}} {
		tenants := []Tenant{{Share: 40, Groups: 1, Used: .1}, always(30, 1), always(30, 1)}
		if c.capped >= 0 {
			tenants[c.capped].Most = tenants[c.capped].Share / 100
		}
		var r Rule
		if p := r.Next(tenants); len(p.Turns) != c.turns || p.TimeSlices[0] != c.other || p.TimeSlices[1] != 2*ms || p.TimeSlices[2] != 2*ms {
			t.Errorf("a cap of tenant %d: %v", c.capped, p)
		}
	}
}

func TestAllSleepersBearTheCostAlike(t *testing.T) {
	var r Rule
	tenants := []Tenant{
		{Share: 50, Groups: 1, Used: .6, Step: 10 * ms, Pause: 5 * ms, Left: 1},
		{Share: 50, Groups: 1, Used: .2, Step: 2 * ms, Pause: ms, Left: 1},
	}
	r.Next(tenants)
	r.Next(tenants)
	p := r.Next(tenants) // each step was seen in three windows
	if !isNear(r.alike.round, 3750*us) || !isNear(p.TimeSlices[0], 1225*us) || p.TimeSlices[1] != 100*ms || r.short != 0 {
		t.Errorf("a round of %v, %v", r.alike.round, p)
	}
}

func TestThirtyBesideASleeperOfSeventy(t *testing.T) {
	if had := Weights([]int{30, 70}); had[0] != 30 || had[1] != 70 {
		t.Errorf("weights %v", had)
	}
	thirty := Tenant{Share: .3, Most: .3, Groups: 1, Used: .3, Cut: true}
	seventy := Tenant{Share: .7, Most: .7, Groups: 1, Used: .475, Cut: true}
	var r Rule
	slicesOf(t, &r, []time.Duration{6 * ms, 14 * ms}, thirty, seventy)
	seventy.Cut, seventy.Left, seventy.Step, seventy.Pause = false, 1, 10*ms, 10*ms
	if due, _ := r.dues([]Tenant{thirty, seventy}); math.Abs(due[0]-.3)+math.Abs(due[1]-.475) > 1e-9 {
		t.Errorf("dues %v", due)
	}
	if p := slicesOf(t, &r, []time.Duration{6 * ms, 14 * ms}, thirty, seventy); len(p.Turns) != 0 {
		t.Errorf("turns %v", p.Turns)
	}
	seventy.Used = .4
	slicesOf(t, &r, []time.Duration{11053 * us, 50 * ms}, thirty, seventy)

	var asks Demand
	asks.Look(100*ms, 60*ms, 30*ms, .3) // while it is on it could have half of the GPU
	half := NewDemand(.5)
	hold := Hold{Share: .3, held: true} // neither credit nor debt
	parts := Parts([]Rival{{Weight: .3, Wants: asks.Part(), May: hold.May()}, {Weight: .7, Wants: half.Part(), May: 1}})
	if math.Abs(parts[0]-.6) > 1e-9 || parts[1] != 1 {
		t.Errorf("parts of a period %v", parts)
	}
	if on := hold.Next(parts[0], Period(1, false)); on != 30*ms {
		t.Errorf("on for %v", on)
	}
}

func TestACapIsPaidBack(t *testing.T) {
	h := NewHold(.25)
	if h.Credit() != 50*ms {
		t.Errorf("begins with %v", h.Credit())
	}
	h.Look(200*ms, 200*ms, 1, 1)
	if on := h.Next(h.May(), 50*ms); h.Credit() != -99200*us || !isNear(on, 7540*us) {
		t.Errorf("owes %v, is on for %v", -h.Credit(), on)
	}
	h.Look(200*ms, 30*ms, .15, 1)
	if h.Credit() != -79200*us {
		t.Errorf("owes %v after another look", -h.Credit())
	}
}

// The first tenant is off for half of the time, so the GPU is idle then. An engine that is busy for all the rest is that tenant's.
func TestWhoFillsTheGPUWhileOnHasAllOfThat(t *testing.T) {
	for active, want := range map[float64]time.Duration{.5: 48 * ms, .3: 30 * ms * 48 / 68} {
		had := []time.Duration{48 * ms, 20 * ms}
		w := window{Look: Look{Active: active}, gone: 100 * ms, off: []bool{true, false}, had: had, around: &around{}}
		w.around.take(&w, 50*ms)
		if used := w.divide(make([]Usage, 2)); !isNear(used[0], want) || !isNear(used[0]+used[1], time.Duration(active*float64(100*ms))) {
			t.Errorf("an engine at %v: %v, want %v", active, used, want)
		}
	}
}

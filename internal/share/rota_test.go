// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// However late changes are made, each is on for its part.
func TestTurnsAreFairWhenChangesWait(t *testing.T) {
	for seed := range uint64(50) {
		dice := rand.New(rand.NewPCG(seed, 1))
		var turns []Turn
		all := time.Duration(0)
		for i := range 2 + dice.IntN(8) {
			turns = append(turns, Turn{Tenant: i, For: 10*ms + time.Duration(dice.IntN(int(200*ms)))})
			all += turns[i].For
		}
		on, had, total := -1, make([]time.Duration, len(turns)), time.Duration(0)
		var r Rota
		for gone := time.Duration(0); total < 100*time.Second; total += gone {
			next := r.Next(turns, on, gone)
			if on < 0 || dice.IntN(4) > 0 { // else the budget has nothing left
				on = next
			}
			gone = time.Duration(1 + dice.IntN(int(300*ms)))
			had[on] += gone
		}
		for i, d := range had {
			if got, want := float64(d)/float64(total), float64(turns[i].For)/float64(all); math.Abs(got-want) > .02 {
				t.Errorf("seed %d: turn %d was on for %.3f, want %.3f", seed, i, got, want)
			}
		}
	}
}

func TestATurnLastsItsTime(t *testing.T) {
	turns := []Turn{{1, 0, 100 * ms}, {2, 0, 50 * ms}}
	r := Rota{Begins: 1230 * ms} // of cycles of 150 ms: 30 ms into the first
	on := r.Next(turns, -1, 0)
	var seen []int
	for range 20 {
		seen = append(seen, turns[on].Tenant)
		on = r.Next(turns, on, 25*ms)
	}
	for i, tenant := range seen {
		if want := []int{1, 1, 1, 1, 2, 2}[i%6]; tenant != want {
			t.Fatalf("%v", seen)
		}
	}
	later := Rota{Begins: 1320 * ms} // 120 ms
	if on := later.Next(turns, -1, 0); turns[on].Tenant != 2 {
		t.Error("always the same begins")
	}
}

func TestTurnsComeAndGo(t *testing.T) {
	var r Rota
	if on := r.Next(nil, -1, ms); on != -1 {
		t.Errorf("%d is on of none", on)
	}
	two := []Turn{{1, 0, 100 * ms}, {2, 0, 100 * ms}}
	on := r.Next(two, -1, 0)
	on = r.Next(two, on, 40*ms)
	// The one that is on has another place now, and goes on.
	three := []Turn{{0, 5, 100 * ms}, {1, 0, 100 * ms}, {2, 0, 100 * ms}}
	if on = r.Next(three, on, 40*ms); on != 1 {
		t.Errorf("%d is on", on)
	}
	if on = r.Next(three, on, 40*ms); on == 1 {
		t.Error("on for longer than its turn")
	}
	// One that has gone is nobody.
	if on = r.Next([]Turn{{1, 0, 100 * ms}}, 2, 10*ms); on != 0 {
		t.Errorf("%d is on", on)
	}
}

// Somebody else had half of the first one's time, so it is on for longer.
func TestTurnsGoByWhatWasUsed(t *testing.T) {
	turns := []Turn{{0, 0, 100 * ms}, {1, 0, 100 * ms}}
	var r Rota
	on, had, used := r.Next(turns, -1, 0), make([]float64, 2), make([]float64, 2)
	for step := range 4000 {
		const tick = 25 * ms
		efficiency := []float64{.7, .9}[on]
		had[on] += efficiency * tick.Seconds()
		used[on] += efficiency * tick.Seconds()
		on = r.Next(turns, on, tick)
		if step%20 == 19 {
			r.Correct([]Tenant{{Groups: 1, Cut: true, Used: used[0] / .5}, {Groups: 1, Cut: true, Used: used[1] / .5}}, 500*ms)
			used[0], used[1] = 0, 0
		}
	}
	if math.Abs(had[0]/had[1]-1) > .03 {
		t.Errorf("had %v", had)
	}
}

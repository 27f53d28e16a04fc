// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"slices"
	"testing"
	"time"
)

// Turns of a job of several GPUs come at the same time on each, whoever else is there, and are as long as its part.
func TestTurnsOfSeveralGPUsComeTogether(t *testing.T) {
	works := func(share float64) Tenant { return Tenant{Share: share, Groups: 1, Used: share, Cut: true} }
	for _, c := range []struct {
		all   []Tenant
		first []int
		turns []Turn
	}{
		{[]Tenant{works(.5), works(.5)}, []int{0}, []Turn{{0, 0, 250 * ms}, {Others, 0, 250 * ms}}},
		{[]Tenant{works(.2), works(.5), works(.3)}, []int{1}, []Turn{{1, 0, 250 * ms}, {Others, 0, 250 * ms}}},
		{[]Tenant{works(.7), works(.3)}, []int{1, 0}, []Turn{{1, 0, 150 * ms}, {0, 0, 350 * ms}}},
		{[]Tenant{works(.3), {Share: .4}, works(.3)}, []int{0}, []Turn{{0, 0, 250 * ms}, {Others, 0, 250 * ms}}},
		{[]Tenant{{Share: .375, Most: .3, Groups: 1, Used: .3, Cut: true}, works(.625)}, []int{0}, []Turn{{0, 0, 150 * ms}, {Others, 0, 350 * ms}}},
	} {
		var r Rule
		p := r.Together(c.all, c.first, 2)
		for i, turn := range p.Turns {
			if apart := turn.For - c.turns[i].For; turn.Tenant != c.turns[i].Tenant || max(apart, -apart) > us {
				t.Errorf("%+v: turns %+v, want %+v", c.all, p.Turns, c.turns)
			}
		}
		if len(p.Turns) != len(c.turns) || len(p.TimeSlices) != len(c.all) || slices.Min(p.TimeSlices) <= 0 {
			t.Errorf("%+v: %+v", c.all, p)
		}
		at, now := 0, time.Hour
		for range 10 {
			turn, left := p.At(now)
			if turn != at%len(c.turns) || left <= 0 {
				t.Errorf("at %s: %d, %s", now, turn, left)
			}
			now += left
			at++
		}
	}
}

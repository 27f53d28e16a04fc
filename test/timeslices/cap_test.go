// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import (
	"testing"
	"time"
)

// The machine's figures: one alone, periods of 50 ms, a look at GPM twice a second, 2 s before and 3 s counted.
func TestLoneCapsAreTheMachines(t *testing.T) {
	for _, c := range []struct {
		host       time.Duration // between steps of 1 ms, a launch included; 0 always has work
		share, had float64
	}{
		{0, .10, 9.6}, {0, .30, 29.5}, {0, .50, 49.4}, {0, .90, 89.2},
		{ms, .10, 9.7}, {ms, .30, 29.7},
		{215 * us, .10, 9.6}, {215 * us, .30, 29.3}, {215 * us, .50, 49.5}, {215 * us, .90, 81.1},
	} {
		const period = 50 * ms
		x := always(2 * ms)
		if c.host > 0 {
			x = &Group{Load: Load{Work: ms, Host: c.host}, Slice: 2 * ms}
		}
		g, capped := NewGPU(change, x), Cap{Share: c.share}
		var counted time.Duration
		used := 0.0
		for window := range 10 { // of half a second
			part, before := capped.Next(used), x.Busy
			for range 10 {
				end := g.Now + period
				x.Off = false
				g.Run(g.Now + time.Duration(part*float64(period)))
				x.Off = part < 1
				g.Run(end)
			}
			used = float64(x.Busy-before) / float64(10*period)
			if window >= 4 {
				counted += x.Busy - before
			}
		}
		near(t, "capped", percent(counted, 6*500*ms), c.had, 2)
	}
}

// The machine's figures: beside one that always has work, a look at the log each 10 ms.
func TestCapsBesideAnotherAreTheMachines(t *testing.T) {
	for _, c := range []struct {
		host         time.Duration
		slice, other time.Duration
		share        float64
		had          []float64
	}{
		{0, 10 * ms, 10 * ms, .3, []float64{30.0, 68.0}},
		{0, 10 * ms, 10 * ms, .1, []float64{10.1, 89.2}},
		{100 * us, 10 * ms, 300 * us, .3, []float64{29.8, 57.7}},
		{100 * us, 10 * ms, 300 * us, .1, []float64{10.0, 85.7}},
		{ms, 10 * ms, 300 * us, .3, []float64{29.8, 57.9}},
		{ms, 10 * ms, 300 * us, .1, []float64{10.0, 85.8}},
	} {
		x, other := always(c.slice), always(c.other)
		if c.host > 0 {
			x = &Group{Load: Load{Work: ms, Host: c.host}, Slice: c.slice}
		}
		g, credit := NewGPU(change, x, other), Credit{Share: c.share}
		for g.Now < 10*time.Second {
			at, before := g.Now, x.Busy
			g.Run(g.Now + 10*ms)
			x.Off = credit.IsOff(x.Busy-before, g.Now-at)
		}
		near(t, "capped", percent(x.Busy, g.Now), c.had[0], 2)
		near(t, "the other", percent(other.Busy, g.Now), c.had[1], 2)
	}
}

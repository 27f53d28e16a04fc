// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"testing"
	"time"
)

// A meter is wrong by a little: who has by it a little more than its cap, as by its weight, is left alone; once it is held, its cap is exact.
func TestWhoIsHardlyBeyondItsCapIsLeftAlone(t *testing.T) {
	for used, held := range map[float64]bool{.24: false, .253: false, .27: true} {
		h := NewHold(.25)
		for range 1000 {
			h.Look(100*ms, 100*ms, used, used)
		}
		if Holds(Parts([]Rival{{Weight: 1, Wants: used, May: h.May()}})[0], 50*ms) != held {
			t.Errorf("uses %v of .25: held %v", used, !held)
		}
	}
}

// What was not used is worth a moment of the GPU's time, whatever the cap, and what was too much half a second.
func TestACapsCreditIsBounded(t *testing.T) {
	for _, limit := range []float64{.01, .1, .5, .99} {
		h := NewHold(limit)
		h.Rest(time.Hour)
		if most := min(50*ms, time.Duration(limit*float64(250*ms))); h.Credit() > most {
			t.Errorf("cap of %v: a credit of %v", limit, h.Credit())
		}
		h.Look(time.Hour, time.Hour, 1, 1)
		if h.Credit() != -500*ms {
			t.Errorf("cap of %v: owes %v", limit, -h.Credit())
		}
		if on := h.Next(h.May(), 10*time.Second); on < time.Duration(limit*float64(time.Second)) {
			t.Errorf("cap of %v: on for %v of ten seconds", limit, on)
		}
	}
	h := NewHold(.5)
	if h.SetShare(.04); h.Credit() > 10*ms {
		t.Errorf("a smaller cap has a credit of %v", h.Credit())
	}
}

// What is too short for a period of its own, on or off, is made up for in a later one.
func TestShortTimesAreMadeUpFor(t *testing.T) {
	for _, limit := range []float64{.01, .02, .05, .95} {
		h, on, calls := NewHold(limit), time.Duration(0), 0
		for range 1000 {
			n := h.Next(h.May(), 50*ms)
			if on += n; n > 0 && n < leastOn || n < 50*ms && n > 50*ms-leastOff {
				t.Errorf("cap of %v: on for %v", limit, n)
			}
			if n > 0 && n < 50*ms {
				calls++
			}
			h.Look(50*ms, n, float64(n)/float64(50*ms), 1)
		}
		if had := float64(on) / float64(1000*50*ms); had < limit-.005 || had > limit+.005 {
			t.Errorf("cap of %v: was on for %v in %d periods", limit, had, calls)
		}
	}
}

func TestPeriodsGrowWithTheCalls(t *testing.T) {
	for calls, period := range map[int]time.Duration{0: 50 * ms, 1: 50 * ms, 2: 100 * ms, 4: 200 * ms, 16: 200 * ms, 512: 6400 * ms} {
		if had := Period(calls, false); had != period {
			t.Errorf("%d calls: %v", calls, had)
		}
		if had := Period(calls, true); had != max(100*ms, period) {
			t.Errorf("%d calls, alone: %v", calls, had)
		}
	}
}

// After a death a slice that used about its cap may have been held, whatever credit it had; one that used less goes on as before.
func TestWhatASliceHadWhileNothingWasCounted(t *testing.T) {
	for used, took := range map[float64]float64{.5: 1, .47: 1, .2: .2, 0: 0} {
		h := NewHold(.5)
		if had := h.Resume(h.most(), 100*ms, 0, used); had != took {
			t.Errorf("used %v of .5: taken for %v, want %v", used, had, took)
		}
		if may := h.May(); took == 1 && may > .55 || took < 1 && may != 1 {
			t.Errorf("used %v of .5: may have %v", used, may)
		}
	}
	if had := NewHold(.5).Resume(0, 100*ms, 0, .2); had != 1 {
		t.Errorf("without credit: taken for %v", had)
	}
}

// One that runs while it is off is told from a meter that lags behind.
func TestWhoRunsWhileItIsOffIsSeen(t *testing.T) {
	for used, runs := range map[float64]bool{.3: false, .34: false, .9: true} {
		h := NewHold(.3)
		for range 20 {
			h.Look(100*ms, 30*ms, used, 1)
		}
		off, ran := h.RanOff()
		if off != 1400*ms || float64(ran) > ranOffPart*float64(off) != runs {
			t.Errorf("%v: off for %v, ran %v", used, off, ran)
		}
		if off, _ := h.RanOff(); off != 0 {
			t.Error("it is said twice")
		}
	}
}

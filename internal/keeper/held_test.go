// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// seconds holds a job's cap over 10 s and over each second.
func (m *machine) seconds(name string, want float64) {
	m.t.Helper()
	whole := m.ran()[0]
	for second := range 10 {
		busy, at := m.ran()[0], m.gpu.Now
		m.play(time.Second)
		if had := percent(m.ran()[0]-busy, m.gpu.Now-at); math.Abs(had-want) > 5 {
			m.t.Errorf("%s: in second %d it had %.1f, want %.1f", name, second, had, want)
		}
	}
	if had := percent(m.ran()[0]-whole, 10*time.Second); math.Abs(had-want) > 1 {
		m.t.Errorf("%s: in ten seconds it had %.2f, want %.1f", name, had, want)
	}
}

func TestALoneCapIsHeld(t *testing.T) {
	for _, kernel := range []time.Duration{100 * us, 2 * ms, 20 * ms, 40 * ms} {
		for _, pause := range []time.Duration{0, 20 * us, ms} {
			for _, limit := range []int{3, 10, 25, 50, 75, 90} {
				asks := 100 * float64(kernel) / float64(kernel+pause)
				name := fmt.Sprintf("kernels of %v, pauses of %v, cap of %v", kernel, pause, limit)
				m := crowd(t, capped(limit, timeslices.Load{Work: kernel, Host: pause}))
				m.play(3 * time.Second)
				m.seconds(name, min(float64(limit), asks))
				calls := m.made()
				m.play(10 * time.Second)
				if most := 2*10*20 + 2; m.made()-calls > most || asks < float64(limit)-.5 && m.made() != calls {
					t.Errorf("%s: %d calls in 10 s", name, m.made()-calls)
				}
			}
		}
	}
}

func TestACapIsHeldBesideOthers(t *testing.T) {
	tiny, sixth := timeslices.Load{Work: 100 * us, Host: 20 * us}, timeslices.Load{Work: ms, Host: 5 * ms}
	for _, c := range []struct {
		name  string
		of    []job
		wants []float64 // 0: whatever it has
	}{
		{"25 beside one that is idle", []job{capped(25, fills), elastic(50, waits)}, []float64{25, 0}},
		{"50 of tiny kernels beside one that is idle", []job{capped(50, tiny), elastic(50, waits)}, []float64{50, 0}},
		{"25 that asks for 16 beside one that is idle", []job{capped(25, sixth), elastic(50, waits)}, []float64{16.7, 0}},
		{"25 beside one without a cap", []job{capped(25, fills), elastic(75, fills)}, []float64{24.5, 0}},
		{"25 beside one that asks for 16", []job{capped(25, fills), elastic(75, sixth)}, []float64{25, 0}},
		{"50 beside one that asks for 16", []job{capped(50, fills), elastic(50, sixth)}, []float64{50, 0}},
		{"30 beside one of 70 that sleeps half of the time", []job{capped(30, fills), capped(70, timeslices.Load{Work: 10 * ms, Host: 10 * ms})}, []float64{30, 49.4}},
		{"30 without a cap beside the same", []job{elastic(30, fills), capped(70, timeslices.Load{Work: 10 * ms, Host: 10 * ms})}, []float64{53.6, 44.7}},
		{"two of 25", []job{capped(25, fills), capped(25, fills)}, []float64{25, 25}},
		{"30 and 50", []job{capped(30, fills), capped(50, fills)}, []float64{30, 50}},
		{"10 and 25 beside one without a cap", []job{capped(10, fills), capped(25, fills), elastic(65, fills)}, []float64{9.7, 24.3, 0}},
		{"four of 25", []job{capped(25, fills), capped(25, fills), capped(25, fills), capped(25, fills)}, []float64{24.2, 24.2, 24.2, 24.2}},
		{"a job of four processes, 30, beside 20", []job{capped(30, fills, fills, fills, fills), capped(20, fills)}, []float64{30, 20}},
	} {
		found := watch(t, 5*time.Second, 10*time.Second, c.of...)
		for i, want := range c.wants {
			if had := found.had[i]; want != 0 && math.Abs(had-want) > 1 {
				t.Errorf("%s: slice %d had %.1f, want %.1f", c.name, i, had, want)
			}
			if i < len(c.wants)-1 && math.Abs(found.counted[i]-found.had[i]) > 1 {
				t.Errorf("%s: slice %d had %.1f, counted %.1f", c.name, i, found.had[i], found.counted[i])
			}
		}
		if sum(found.had) > 97 && found.callsASecond > 0 {
			t.Errorf("%s: %.0f calls a second where the GPU is full", c.name, found.callsASecond)
		}
	}
}

// Who sleeps, of several that do not fill the GPU, is known to some points only, and held by what is known.
func TestACapOfSeveralWhoSleepIsHeldBySomePoints(t *testing.T) {
	half, sixth := timeslices.Load{Work: ms, Host: ms}, timeslices.Load{Work: ms, Host: 5 * ms}
	for _, c := range []struct {
		of    []job
		wants []float64
	}{
		{[]job{capped(25, half), elastic(75, sixth)}, []float64{25, 16.5}},
		{[]job{capped(20, half), capped(30, fills), capped(40, fills)}, []float64{20, 30, 38}},
		{[]job{capped(10, fills), capped(25, fills), elastic(65, sixth)}, []float64{10, 25, 16.5}}, // 29.5 seen, counted as 24.9: the last one is counted as 35.6
		{[]job{capped(30, fills), capped(50, timeslices.Load{Work: 100 * us, Host: 20 * us})}, []float64{30, 46}},
	} {
		found := watch(t, 5*time.Second, 10*time.Second, c.of...)
		for i, want := range c.wants {
			near(t, fmt.Sprintf("%v, slice %d", c.wants, i), found.had[i], want, 5)
		}
	}
}

// Ten capped slices that fill the GPU, and others whose caps leave nothing over, are held by weights alone.
func TestCapsThatFillTheGPUTakeNoCalls(t *testing.T) {
	for _, caps := range [][]int{{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, {50, 50}, {20, 30, 50}, {25, 25, 25, 25}} {
		var all []job
		for _, limit := range caps {
			all = append(all, capped(limit, fills))
		}
		found := watch(t, 5*time.Second, 20*time.Second, all...)
		if found.callsASecond > 0 {
			t.Errorf("%v: %.1f calls a second", caps, found.callsASecond)
		}
		inProportion(t, fmt.Sprint(caps), found.had, all, 1)
	}
}

// vgpud is killed each second, and what was let on meanwhile is paid back.
func TestALoneCapIsHeldThoughVgpudDies(t *testing.T) {
	for _, c := range []struct {
		cap  int
		want float64
		load timeslices.Load
	}{{50, 50, fills}, {50, 50, timeslices.Load{Work: 20 * ms}}, {75, 75, fills}, {50, 16.7, timeslices.Load{Work: ms, Host: 5 * ms}}} {
		m, dice := crowd(t, capped(c.cap, c.load)), rand.New(rand.NewPCG(1, 2))
		from := m.gpu.Now
		for range 480 {
			m.play(750*ms + time.Duration(dice.IntN(int(100*ms)))) // at any time between two looks
			m.dies(20*ms, 150*ms)
		}
		near(t, fmt.Sprintf("cap of %d, killed each second", c.cap), percent(m.ran()[0], m.gpu.Now-from), c.want, 2)
	}
}

// Who slept has no more at once than what its cap keeps, and over some seconds no more than its cap.
func TestWhoSleptHasNoMoreThanItsCap(t *testing.T) {
	for _, limit := range []int{10, 25, 50, 75} {
		for _, burst := range []time.Duration{50 * ms, 150 * ms, 400 * ms, 2 * time.Second} {
			pause := time.Duration(float64(burst) * (100/float64(limit) - 1) / 2) // it asks for more than its limit
			m := crowd(t, capped(limit, timeslices.Load{Work: burst, Host: pause}))
			m.play(5 * time.Second)
			if had := m.watch(20 * time.Second).had[0]; had > float64(limit)+1 {
				t.Errorf("cap of %v, bursts of %v and pauses of %v: had %.1f", limit, burst, pause, had)
			}
		}
	}
}

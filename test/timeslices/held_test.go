// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// capped is a job with a cap.
func capped(pid uint32, percent float64, loads ...Load) *Slice {
	s := job(pid, percent, loads...)
	s.Hold = share.NewHold(percent / 100)
	return s
}

// seconds holds a cap over 10 s and over each second.
func (s *Slice) seconds(t *testing.T, name string, v *Vgpud, want float64) {
	t.Helper()
	whole := s.busy()
	for second := range 10 {
		busy, at := s.busy(), v.GPU.Now
		v.Run(at + time.Second)
		if had := percent(s.busy()-busy, v.GPU.Now-at); math.Abs(had-want) > 5 {
			t.Errorf("%s: in second %d it had %.1f, want %.1f", name, second, had, want)
		}
	}
	if had := percent(s.busy()-whole, 10*time.Second); math.Abs(had-want) > 1 {
		t.Errorf("%s: in ten seconds it had %.2f, want %.1f", name, had, want)
	}
}

func TestALoneCapIsHeld(t *testing.T) {
	for _, kernel := range []time.Duration{100 * us, 2 * ms, 20 * ms, 40 * ms} {
		for _, pause := range []time.Duration{0, 20 * us, ms} {
			for _, limit := range []float64{3, 10, 25, 50, 75, 90} {
				asks := 100 * float64(kernel) / float64(kernel+pause)
				s := capped(1, limit, Load{Work: kernel, Host: pause})
				name := fmt.Sprintf("kernels of %v, pauses of %v, cap of %v", kernel, pause, limit)
				v := NewVgpud(gpuOf(s), &share.Budget{}, s)
				v.Run(3 * time.Second)
				s.seconds(t, name, v, min(limit, asks))
				calls := v.Calls
				v.Run(v.GPU.Now + 10*time.Second)
				if most := 2*10*20 + 2; v.Calls-calls > most || asks < limit-.5 && v.Calls != calls {
					t.Errorf("%s: %d calls in 10 s", name, v.Calls-calls)
				}
			}
		}
	}
}

// idle has a context, and did something once.
var idle = Load{Work: us, Host: 1000 * time.Hour}

func TestACapIsHeldBesideOthers(t *testing.T) {
	always, tiny := Load{Work: 1000 * time.Hour}, Load{Work: 100 * us, Host: 20 * us}
	for _, c := range []struct {
		name  string
		of    func() []*Slice
		wants []float64 // 0: whatever it has
	}{
		{"25 beside one that is idle", func() []*Slice { return []*Slice{capped(1, 25, always), job(2, 50, idle)} }, []float64{25, 0}},
		{"50 of tiny kernels beside one that is idle", func() []*Slice { return []*Slice{capped(1, 50, tiny), job(2, 50, idle)} }, []float64{50, 0}},
		{"25 that asks for 16 beside one that is idle", func() []*Slice { return []*Slice{capped(1, 25, Load{Work: ms, Host: 5 * ms}), job(2, 50, idle)} }, []float64{16.7, 0}},
		{"25 beside one without a cap", func() []*Slice { return []*Slice{capped(1, 25, always), job(2, 75, always)} }, []float64{24.5, 0}},
		{"25 beside one that asks for 16", func() []*Slice { return []*Slice{capped(1, 25, always), job(2, 75, Load{Work: ms, Host: 5 * ms})} }, []float64{25, 0}},
		{"50 beside one that asks for 16", func() []*Slice { return []*Slice{capped(1, 50, always), job(2, 50, Load{Work: ms, Host: 5 * ms})} }, []float64{50, 0}},
		{"two of 25", func() []*Slice { return []*Slice{capped(1, 25, always), capped(2, 25, always)} }, []float64{25, 25}},
		{"30 and 50", func() []*Slice { return []*Slice{capped(1, 30, always), capped(2, 50, always)} }, []float64{30, 50}},
		{"10 and 25 beside one without a cap", func() []*Slice { return []*Slice{capped(1, 10, always), capped(2, 25, always), job(3, 65, always)} }, []float64{9.7, 24.3, 0}},
		{"10 and 25 beside one that asks for 16", func() []*Slice {
			return []*Slice{capped(1, 10, always), capped(2, 25, always), job(3, 65, Load{Work: ms, Host: 5 * ms})}
		}, []float64{10, 25, 0}},
		{"four of 25", func() []*Slice {
			return []*Slice{capped(1, 25, always), capped(2, 25, always), capped(3, 25, always), capped(4, 25, always)}
		}, []float64{24.2, 24.2, 24.2, 24.2}},
		{"a job of four processes, 30, beside 20", func() []*Slice { return []*Slice{capped(1, 30, always, always, always, always), capped(9, 20, always)} }, []float64{30, 20}},
	} {
		all := c.of()
		found := watch(5*time.Second, 10*time.Second, all...)
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
	half, sixth := Load{Work: ms, Host: ms}, Load{Work: ms, Host: 5 * ms}
	for _, c := range []struct {
		of    []*Slice
		wants []float64
	}{
		{[]*Slice{capped(1, 25, half), job(2, 75, sixth)}, []float64{25, 16.5}},
		{[]*Slice{capped(1, 20, half), capped(2, 30, fills), capped(3, 40, fills)}, []float64{20, 30, 38}},
		{[]*Slice{capped(1, 30, fills), capped(2, 50, Load{Work: 100 * us, Host: 20 * us})}, []float64{30, 46}},
	} {
		found := watch(5*time.Second, 10*time.Second, c.of...)
		for i, want := range c.wants {
			near(t, fmt.Sprintf("%v, slice %d", c.wants, i), found.had[i], want, 4)
		}
	}
}

// Ten capped slices that fill the GPU, and others whose caps leave nothing over, are held by weights alone.
func TestCapsThatFillTheGPUTakeNoCalls(t *testing.T) {
	for _, caps := range [][]float64{{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}, {50, 50}, {20, 30, 50}, {25, 25, 25, 25}} {
		var all []*Slice
		for i, limit := range caps {
			all = append(all, capped(uint32(i+1), limit, fills))
		}
		found := watch(5*time.Second, 20*time.Second, all...)
		if found.callsASecond > 0 {
			t.Errorf("%v: %.1f calls a second", caps, found.callsASecond)
		}
		inProportion(t, fmt.Sprint(caps), found.had, all, 1)
	}
}

// vgpud is killed each second, and what was let on meanwhile is paid back.
func TestALoneCapIsHeldThoughVgpudDies(t *testing.T) {
	for _, c := range []struct {
		cap, want float64
		load      Load
	}{{50, 50, fills}, {50, 50, Load{Work: 20 * ms}}, {75, 75, fills}, {50, 16.7, Load{Work: ms, Host: 5 * ms}}} {
		s := capped(1, c.cap, c.load)
		g, budget, dice := gpuOf(s), &share.Budget{}, rand.New(rand.NewPCG(1, 2))
		for range 480 {
			v := NewVgpud(g, budget, s)
			v.Run(g.Now + 750*ms + time.Duration(dice.IntN(int(100*ms)))) // at any time between two looks
			v.Die(20 * ms)                                                // until its supervisor has let it on
			g.Run(g.Now + 150*ms)
		}
		near(t, fmt.Sprintf("cap of %.0f, killed each second", c.cap), percent(s.busy(), g.Now), c.want, 2)
	}
}

// Who slept has no more at once than what its cap keeps, and over some seconds no more than its cap.
func TestWhoSleptHasNoMoreThanItsCap(t *testing.T) {
	for _, limit := range []float64{10, 25, 50, 75} {
		for _, burst := range []time.Duration{50 * ms, 150 * ms, 400 * ms, 2 * time.Second} {
			pause := time.Duration(float64(burst) * (100/limit - 1) / 2) // it asks for more than its limit
			s := capped(1, limit, Load{Work: burst, Host: pause})
			v := NewVgpud(gpuOf(s), &share.Budget{}, s)
			v.Run(5 * time.Second)
			busy, at := s.busy(), v.GPU.Now
			v.Run(at + 20*time.Second)
			if had := percent(s.busy()-busy, v.GPU.Now-at); had > limit+1 {
				t.Errorf("cap of %v, bursts of %v and pauses of %v: had %.1f", limit, burst, pause, had)
			}
		}
	}
}

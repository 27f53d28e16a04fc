// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

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

// An H200, driver 580.159: what was missing to the whole GPU where processes cut each other, and where one of them left by itself.
var change = Change{Load: 127 * us, Save: 110 * us}

// One process alone counted this many percent with the programs of that day, as their
// kernels are a little shorter than they say.
const alone = 101.4

func always(slice time.Duration) *Group {
	return &Group{Load: Load{Work: 1000 * time.Hour}, Slice: slice}
}

func percent(busy, of time.Duration) float64 { return 100 * float64(busy) / float64(of) }

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s: %.2f, want %.2f within %.2f", what, got, want, within)
	}
}

func quantile(waits []time.Duration, q float64) float64 {
	sorted := slices.Sorted(slices.Values(waits))
	return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]) / float64(ms)
}

// The machine's figures: processes with kernels of 2 ms, counted by themselves (docs/verified/time-from-outside.md).
func TestSharesOfManyAreTheMachines(t *testing.T) {
	for _, c := range []struct {
		slices []time.Duration
		want   []float64
	}{
		{[]time.Duration{500 * us, 4500 * us}, []float64{8.5, 83.1}},
		{[]time.Duration{1500 * us, 3500 * us}, []float64{27.3, 64.5}},
		{[]time.Duration{3 * ms, 7 * ms}, []float64{28.5, 67.1}},
		{[]time.Duration{2 * ms, 18 * ms}, []float64{9.6, 88.2}},
		{[]time.Duration{5 * ms, 45 * ms}, []float64{9.9, 89.2}},
		{[]time.Duration{200 * us, 19800 * us}, []float64{0.8, 97.0}},
		{[]time.Duration{2 * ms, 4 * ms, 6 * ms, 8 * ms}, []float64{9.4, 19.1, 28.9, 38.2}},
		{[]time.Duration{ms, ms, ms, ms, 2 * ms, 2 * ms, 2 * ms, 2 * ms, 4 * ms, 4 * ms}, []float64{4.4, 4.4, 4.4, 4.4, 9.0, 9.0, 9.0, 9.0, 18.1, 18.1}},
		{[]time.Duration{2500 * us, 2500 * us, 2500 * us, 2500 * us, 5 * ms, 5 * ms, 5 * ms, 5 * ms, 10 * ms, 10 * ms}, []float64{4.7, 4.7, 4.7, 4.7, 9.6, 9.6, 9.6, 9.6, 19.0, 19.0}},
		{[]time.Duration{300 * us, 300 * us, 300 * us, 300 * us, 300 * us, 300 * us, 300 * us, 300 * us, 300 * us, 300 * us}, []float64{5.4, 5.4, 5.4, 5.4, 5.4, 5.4, 5.4, 5.4, 5.4, 5.4}},
	} {
		var groups []*Group
		for _, slice := range c.slices {
			groups = append(groups, always(slice))
		}
		g := NewGPU(change, groups...)
		g.Run(10 * time.Second)
		for i, x := range groups {
			near(t, x.Slice.String(), percent(x.Busy, g.Now), c.want[i], 2)
		}
	}
}

// The machine's figures: a job of many processes, or a process of many contexts, beside one.
func TestJobsOfManyAreTheMachines(t *testing.T) {
	for _, c := range []struct {
		groups      int
		each, other time.Duration
		had, others float64
	}{
		{16, 625 * us, 10 * ms, 41.0, 43.3},
		{16, 1250 * us, 20 * ms, 45.1, 46.1},
		{8, 2500 * us, 20 * ms, 47.3, 47.8},
		{10, 2048 * us, 20 * ms, 46.9, 46.9},
		{10, 20 * ms, 20 * ms, 89.9, 8.8},
	} {
		groups := []*Group{always(c.other)}
		for range c.groups {
			groups = append(groups, always(c.each))
		}
		g := NewGPU(change, groups...)
		g.Run(10 * time.Second)
		job := time.Duration(0)
		for _, x := range groups[1:] {
			job += x.Busy
		}
		near(t, "the job", percent(job, g.Now), c.had, 2)
		near(t, "the other", percent(groups[0].Busy, g.Now), c.others, 2)
	}
}

// The same of another day.
func TestSharesAreTheMachines(t *testing.T) {
	for _, c := range []struct {
		a, b         time.Duration
		wantA, wantB float64
	}{
		{3 * ms, 7 * ms, 29.2, 68.3},
		{1 * ms, 3 * ms, 22.9, 69.1},
		{400 * us, 1600 * us, 15.9, 67.5},
	} {
		a, b := always(c.a), always(c.b)
		g := NewGPU(change, a, b)
		g.Run(10 * time.Second)
		near(t, c.a.String(), percent(a.Busy, g.Now), c.wantA/alone*100, 2)
		near(t, c.b.String(), percent(b.Busy, g.Now), c.wantB/alone*100, 2)
	}
}

// The machine's figures: a request of 5.2 ms some 25 ms after the last one, beside one batch.
// What the batch had is counted over other seconds there: 0.3 s before the first of 3 s of
// requests, and with the kernels that were queued and not done.
func TestRequestsWaitAsOnTheMachine(t *testing.T) {
	for _, c := range []struct {
		request, batch time.Duration
		p50, p99, has  float64
		depth          float64 // kernels of 20 ms that the batch has queued
	}{
		{2048 * us, 2048 * us, 11.5, 12.52, 90.3, 8},
		{time.Second, 2048 * us, 6.53, 7.46, 88.5, 4},
		{time.Second, 200 * us, 5.487, 5.613, 87.8, 4},
		{time.Second, 1 * us, 5.378, 5.411, 87.8, 4},
	} {
		r := &Group{Load: Load{Work: 5203 * us, Host: 25 * ms, Varied: true}, Slice: c.request}
		b := always(c.batch)
		g := NewGPU(change, r, b)
		g.Run(60 * time.Second)
		near(t, "p50", quantile(r.Waits, .5), c.p50, c.p50*.05)
		near(t, "p99", quantile(r.Waits, .99), c.p99, c.p99*.05)
		counted := (300 + 3000*percent(b.Busy, g.Now)/100 + c.depth*20) / 3300 * alone
		near(t, "batch", counted, c.has, 2)
	}
}

func TestHostBound(t *testing.T) {
	r := &Group{Load: Load{Work: 1010 * us, Host: 5 * ms, Varied: true}, Slice: 2048 * us}
	b := always(2048 * us)
	g := NewGPU(change, r, b)
	g.Run(60 * time.Second)
	near(t, "p50", quantile(r.Waits, .5), 2.311, .2)
	counted := (300 + 4000*percent(b.Busy, g.Now)/100 + 4*2) / 4300 * alone // as above
	near(t, "filler", counted, 84.1, 2)
	near(t, "own", percent(r.Busy, g.Now), 14.04, 1)
}

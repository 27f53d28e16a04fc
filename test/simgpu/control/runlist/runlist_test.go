// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package runlist

import (
	"math"
	"testing"
)

const ms = 1000 * us

// busy always has work, in kernels of one length.
func busy(r *Runlist, pid int, kernelNS, sliceNS int64) *Group {
	g := r.Add(pid, 0)
	g.SliceNS = sliceNS
	c := r.AddChannel(g)
	var again func(int64)
	again = func(int64) { r.Submit(&Work{Channel: c, NS: kernelNS, Done: again}) }
	again(0)
	again(0)
	return g
}

func percent(g *Group, ofNS int64) float64 { return 100 * float64(g.BusyNS) / float64(ofNS) }

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within {
		t.Errorf("%s: %.2f, want %.2f within %.2f", what, got, want, within)
	}
}

// The figures of an H200 (docs/verified/time-from-outside.md §4).
func TestSharesAreTheMachines(t *testing.T) {
	for _, c := range []struct {
		slicesUS []int64
		want     []float64
	}{
		{[]int64{1500, 3500}, []float64{27.3, 64.5}},
		{[]int64{3000, 7000}, []float64{28.5, 67.1}},
		{[]int64{2000, 18000}, []float64{9.6, 88.2}},
		{[]int64{2000, 4000, 6000, 8000}, []float64{9.4, 19.1, 28.9, 38.2}},
		{[]int64{300, 300, 300, 300, 300, 300, 300, 300, 300, 300}, []float64{5.4, 5.4, 5.4, 5.4, 5.4, 5.4, 5.4, 5.4, 5.4, 5.4}},
	} {
		r := New(0)
		var groups []*Group
		for i, slice := range c.slicesUS {
			groups = append(groups, busy(r, i+1, 2*ms, slice*us))
		}
		r.Advance(10_000 * ms)
		for i, g := range groups {
			near(t, "share", percent(g, 10_000*ms), c.want[i], 2)
		}
	}
}

// However late and in however many steps somebody looks, the same has happened at the same moments.
func TestALateLookChangesNothing(t *testing.T) {
	var switches [3][]Switch
	for i, stepNS := range []int64{7 * us, 333 * us, 1000 * ms} {
		r := New(0)
		r.Log = func(s Switch) {
			s.Group = nil
			switches[i] = append(switches[i], s)
		}
		busy(r, 1, 300*us, 500*us)
		busy(r, 2, 5*ms, 2*ms).WaitsForIdle = true
		for now := int64(0); now < 1000*ms; now += stepNS {
			r.Advance(min(now+stepNS, 1000*ms))
		}
	}
	if len(switches[0]) < 100 {
		t.Fatalf("%d switches", len(switches[0]))
	}
	for _, other := range switches[1:] {
		if len(other) != len(switches[0]) {
			t.Fatalf("%d switches, and %d in other steps", len(switches[0]), len(other))
		}
		for k, s := range other {
			if s != switches[0][k] {
				t.Fatalf("switch %d: %+v, and %+v in other steps", k, switches[0][k], s)
			}
		}
	}
}

func TestWhoIsIdleCostsNothing(t *testing.T) {
	r := New(0)
	idle := r.Add(2, 0)
	c := r.AddChannel(idle)
	r.Submit(&Work{Channel: c, NS: ms})
	r.Advance(10 * ms)
	if channel, ok := r.Resident(); !ok || channel != c.ID {
		t.Errorf("resident is %d, %v, want the idle one that was last, %d", channel, ok, c.ID)
	}
	g := busy(r, 1, 2*ms, 2*ms)
	r.Advance(1010 * ms)
	near(t, "alone", percent(g, 1000*ms), 100, 0.05)
}

func switchAll(r *Runlist, off, only bool, g *Group) {
	for _, c := range g.Channels {
		r.Disable(off, only, false, c)
	}
}

func TestWhoIsOffDoesNotRun(t *testing.T) {
	r := New(0)
	a, b := busy(r, 1, 20*ms, 2*ms), busy(r, 2, 20*ms, 2*ms)
	r.Advance(100 * ms)
	switchAll(r, true, false, a)
	switchAll(r, true, false, a)
	switchAll(r, false, false, a)
	had, others := a.BusyNS, b.BusyNS
	r.Advance(200 * ms)
	if a.BusyNS != had {
		t.Errorf("ran %d ns while it was off, once less than it was taken off", a.BusyNS-had)
	}
	near(t, "the other", float64(b.BusyNS-others)/ms, 100, 2.3)
	switchAll(r, false, false, a)
	r.Advance(300 * ms)
	if a.BusyNS == had {
		t.Error("did not run again once it was on")
	}
}

// Without an order to preempt, what runs goes on until its slice ends.
func TestWhoIsNotScheduledAnyMoreStaysUntilItLeaves(t *testing.T) {
	r := New(0)
	a, b := busy(r, 1, 20*ms, 5*ms), busy(r, 2, 20*ms, 5*ms)
	r.Advance(ms)
	switchAll(r, true, true, a)
	r.Advance(100 * ms)
	near(t, "ran on for", float64(a.BusyNS)/ms, 5, 0.01)
	near(t, "the other", float64(b.BusyNS)/ms, 94.6, 0.1)
}

func TestWhoWaitsForIdleIsCutBetweenKernels(t *testing.T) {
	r := New(0)
	var longest, asked int64
	w := busy(r, 1, 50*ms, 2*ms)
	w.WaitsForIdle = true
	short := r.Add(2, 0)
	c := r.AddChannel(short)
	for now := int64(0); now < 2000*ms; now += 107 * ms {
		r.Advance(now)
		asked = now
		r.Submit(&Work{Channel: c, NS: ms, Done: func(at int64) { longest = max(longest, at-asked) }})
	}
	if longest < 40*ms || longest > 53*ms {
		t.Errorf("a request of 1 ms took %d us at most, want some 50 ms", longest/us)
	}
	if w.Idle == 0 || w.Inner != 0 {
		t.Errorf("%d saves by waiting, %d in a kernel", w.Idle, w.Inner)
	}
}

// Nobody is done before it is said.
func TestDoneNotBefore(t *testing.T) {
	r := New(0)
	at := int64(0)
	done := func(now int64) { at = now }
	for pid, slice := range []int64{100 * us, 700 * us, 3 * ms} {
		g := r.Add(pid, 0)
		g.SliceNS = slice
		c := r.AddChannel(g)
		for k := range int64(40) {
			r.Submit(&Work{Channel: c, NS: (1 + k*k%7) * 211 * us, Done: done})
		}
	}
	looks := 0
	for next := r.DoneNotBefore(); next != Never; next = r.DoneNotBefore() {
		at = 0
		r.Advance(next - 1)
		if at != 0 {
			t.Fatalf("done at %d, not before %d was said", at, next)
		}
		r.Advance(next + 1)
		looks++
	}
	if looks > 5000 {
		t.Errorf("%d looks for 120 kernels", looks)
	}
}

func TestCounterOfUse(t *testing.T) {
	r := New(0)
	busy(r, 1, 3*ms, 3*ms)
	busy(r, 2, 7*ms, 7*ms)
	r.Advance(1050 * ms)
	ns, at := r.Active()
	if at != 1000*ms || ns != 1000*ms {
		t.Errorf("active for %d ns at %d", ns, at)
	}
	sum := r.InBucket(2, 1) + r.InBucket(2, 2)
	if r.InBucket(2, 0) != BucketNS || sum < 185*ms || sum > 198*ms {
		t.Errorf("%d ns in a bucket, %d by processes", r.InBucket(2, 0), sum)
	}
}

// The figures of an H200 (docs/verified/time-from-outside.md §5): one with 1 ms of work, then 1 ms of the host, beside one that always has work.
func TestWhoSleepsHasWhatTheMachineGaveIt(t *testing.T) {
	for sliceUS, want := range map[int64]float64{1000: 42, 2000: 30, 4000: 18} {
		r := New(0)
		sleeper := r.Add(1, 0)
		sleeper.SliceNS = 20 * ms
		c := r.AddChannel(sleeper)
		busy(r, 2, 2*ms, sliceUS*us)
		next := int64(0)
		for now := int64(0); now < 10_000*ms; now += 10 * us {
			r.Advance(now)
			if next <= now {
				next = Never
				r.Submit(&Work{Channel: c, NS: ms, Done: func(at int64) { next = at + ms }})
			}
		}
		near(t, "a sleeper beside a slice", percent(sleeper, 10_000*ms), want, 3)
	}
}

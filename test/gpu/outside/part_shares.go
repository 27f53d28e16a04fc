// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// weights sets each tenant's slice to its share of a round.
func (t *trial) weights() {
	two := func(percent int) []int { return []int{percent, 100 - percent} }
	for _, c := range []struct {
		load    string
		roundMS int
		shares  []int // percent
	}{
		{"ms=2", 5, two(10)}, {"ms=2", 5, two(30)}, {"ms=2", 10, two(10)}, {"ms=2", 10, two(30)},
		{"ms=2", 20, two(10)}, {"ms=2", 20, two(30)}, {"ms=2", 20, two(1)}, {"ms=2", 50, two(10)}, {"ms=2", 50, two(30)},
		{"ms=0.1", 20, []int{10, 20, 30, 40}}, {"ms=2", 20, []int{10, 20, 30, 40}}, {"ms=20", 20, []int{10, 20, 30, 40}},
		{"ms=2", 20, []int{5, 5, 5, 5, 10, 10, 10, 10, 20, 20}}, {"ms=2", 50, []int{5, 5, 5, 5, 10, 10, 10, 10, 20, 20}},
		{"ms=2", 3, []int{10, 10, 10, 10, 10, 10, 10, 10, 10, 10}},
	} {
		all := t.floods(len(c.shares), c.load)
		for i, w := range all {
			w.setSlice(c.roundMS * 10 * c.shares[i])
		}
		t.say(fmt.Sprintf("%s, round of %d ms, shares %v", c.load, c.roundMS, c.shares), 2, looking{}, all...)
		t.stop(all...)
	}
}

// jobs starts all at once, as each measures its kernel alone.
func (t *trial) jobs() {
	all, one, ten := t.floods(16, "ms=2"), t.start("ms=2"), t.start("ms=2 ctxs=10")
	setSlices(625, all...)
	one.setSlice(10000)
	together := func(what string, members []*tenant) {
		m := t.measure(3, looking{}, append(members[:len(members):len(members)], one)...)
		n := len(members)
		t.row(what, fmt.Sprintf("counted %.1f together, %.1f", sum(m.counted[:n]), m.counted[n]), fmt.Sprintf("GPM %.1f", m.gpm))
	}
	together("a job of 16 of 0.625 ms each, beside one of 10 ms", all)
	setSlices(1250, all...)
	one.setSlice(20000)
	together("a job of 16 of 1.25 ms each, beside one of 20 ms", all)
	t.stop(all[8:]...)
	setSlices(2500, all[:8]...)
	together("half of them gone, the others 2.5 ms each, beside one of 20 ms", all[:8])
	t.stop(all[:8]...)
	t.row("ten contexts in one process", fmt.Sprintf("%d groups, %d channels, status %#x", len(ten.groups), len(ten.channels), ten.setSlice(2048)))
	t.say("ten contexts of 2 ms in one process, beside one of 20 ms", 3, looking{}, ten, one)
	ten.setSlice(20000)
	t.say("ten contexts of 20 ms in one process, beside one of 20 ms", 3, looking{}, ten, one)
	t.stop(ten, one)
}

// inTurns keeps one of some on at a time. offFirst: who leaves is off before the next is on.
func inTurns(turn time.Duration, offFirst bool, all []*tenant) (end func() string) {
	for _, w := range all[1:] {
		w.off(true)
	}
	var spent, worst time.Duration
	next := time.Now()
	stop := meanwhile(func(i int) {
		next = next.Add(turn)
		time.Sleep(time.Until(next))
		leaves, comes := all[i%len(all)], all[(i+1)%len(all)]
		began := time.Now()
		if offFirst {
			leaves.off(true)
			comes.off(false)
		} else {
			comes.off(false)
			leaves.off(true)
		}
		took := time.Since(began)
		spent += took
		worst = max(worst, took)
	})
	return func() string {
		calls := 2 * stop()
		for _, w := range all {
			w.off(false)
		}
		return fmt.Sprintf("%d calls, %s each, a change at most %s", calls, millis(spent/time.Duration(max(calls, 1))), millis(worst))
	}
}

func (t *trial) sleeper() {
	for _, load := range []string{"ms=1 host=1", "ms=1 host=0.1"} {
		s, b, c := t.start(load), t.start("ms=2"), t.start("ms=2")
		t.say(load+" alone", 1.5, looking{}, s)
		s.setSlice(20000)
		for _, us := range []int{200, 500, 1000, 2000, 4000, 10000} {
			b.setSlice(us)
			t.say(fmt.Sprintf("%s beside one of %d us", load, us), 1.5, looking{}, s, b)
		}
		for _, us := range []int{200, 500, 1000, 2000} {
			setSlices(us, b, c)
			t.say(fmt.Sprintf("%s beside two of %d us", load, us), 1.5, looking{}, s, b, c)
		}
		t.row("interleave levels 2, 0, 0", fmt.Sprintf("status %#x %#x %#x", s.interleave(2), b.interleave(0), c.interleave(0)))
		for _, us := range []int{500, 1000, 2000} {
			setSlices(us, b, c)
			t.say(fmt.Sprintf("%s of a high level, beside two of %d us", load, us), 1.5, looking{}, s, b, c)
		}
		s.interleave(0)
		for _, turnMS := range []int{10, 20, 50} {
			for _, us := range []int{200, 1000} {
				setSlices(us, b, c)
				end := inTurns(time.Duration(turnMS)*time.Millisecond, false, []*tenant{b, c})
				m := t.measure(2, looking{}, s, b, c)
				t.row(fmt.Sprintf("%s beside two of %d us in turns of %d ms, %s", load, us, turnMS, end()), m.columns()...)
			}
		}
		t.stop(s, b, c)
	}
}

func (t *trial) latency() {
	for _, ms := range []int{1, 5, 20} {
		r, others := t.start(fmt.Sprintf("ms=%d host=40 jit=1", ms)), t.floods(3, "ms=20")
		request := fmt.Sprintf("%d ms", ms)
		t.say(request+" alone", 3, looking{}, r)
		r.setSlice(100000)
		for _, us := range []int{2000, 200, 50} {
			setSlices(us, others...)
			t.say(fmt.Sprintf("%s beside one of %d us", request, us), 3, looking{}, r, others[0])
		}
		for _, us := range []int{2000, 200} {
			setSlices(us, others...)
			t.say(fmt.Sprintf("%s beside two of %d us", request, us), 3, looking{}, r, others[0], others[1])
		}
		setSlices(50, others...)
		for _, offFirst := range []bool{false, true} {
			for _, turnMS := range []int{50, 100} {
				t.latencyInTurns(request, turnMS, offFirst, r, others[:2])
			}
		}
		if ms == 5 {
			t.latencyInTurns(request, 100, false, r, others)
		}
		t.stop(append(others, r)...)
	}
}

func (t *trial) latencyInTurns(request string, turnMS int, offFirst bool, r *tenant, others []*tenant) {
	end := inTurns(time.Duration(turnMS)*time.Millisecond, offFirst, others)
	m := t.measure(5, looking{}, append([]*tenant{r}, others...)...)
	t.row(fmt.Sprintf("%s beside %d of 50 us in turns of %d ms, off first %v, %s", request, len(others), turnMS, offFirst, end()), m.columns()...)
}

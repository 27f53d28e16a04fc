// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package timeslices

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// play lets a rule follow for a while and gives what each had in the second half.
func play(g *GPU, shares []float64, rule *share.Rule, windows int) []float64 {
	const window = time.Second
	had := make([]time.Duration, len(shares))
	tenants := make([]share.Tenant, len(shares))
	for i := range tenants {
		tenants[i] = share.Tenant{Share: shares[i], Groups: 1, Cut: true, Used: shares[i]}
	}
	var half time.Duration
	for w := range windows {
		plan := rule.Next(tenants)
		for i, x := range g.Groups {
			x.Slice, x.Off = plan.TimeSlices[i], len(plan.Turns) > 0 && !sleeps(plan, i)
		}
		before := make([]time.Duration, len(shares))
		cuts, turns := make([]int, len(shares)), make([]int, len(shares))
		for i, x := range g.Groups {
			before[i], cuts[i], turns[i] = x.Busy, x.Cuts, x.Turns
		}
		runTurns(g, plan, g.Now+window)
		for i, x := range g.Groups {
			used := x.Busy - before[i]
			n := x.Turns - turns[i]
			tenants[i].Used, tenants[i].Cut = float64(used)/float64(window), n == 0 || 2*(x.Cuts-cuts[i]) > n
			if w >= windows/2 {
				had[i] += used
			}
		}
		if w >= windows/2 {
			half += window
		}
	}
	var out []float64
	for _, h := range had {
		out = append(out, percent(h, half))
	}
	return out
}

func sleeps(p share.Plan, tenant int) bool {
	for _, t := range p.Turns {
		if t.Tenant == tenant {
			return false
		}
	}
	return true
}

func runTurns(g *GPU, p share.Plan, until time.Duration) {
	if len(p.Turns) == 0 {
		g.Run(until)
		return
	}
	for k := 0; g.Now < until; k = (k + 1) % len(p.Turns) {
		for j, t := range p.Turns {
			g.Groups[t.Tenant].Off = j != k
		}
		g.Run(min(until, g.Now+p.Turns[k].For))
	}
}

// The machine's figures: a rule that looked twice a second at the log, for 6 seconds, and then 4 seconds counted.
func TestTheRuleGivesWhatItGaveOnTheMachine(t *testing.T) {
	for _, c := range []struct {
		name   string
		shares []float64
		hosts  []time.Duration // between steps of 1 ms; 0 always has work
		want   []float64
	}{
		{"both always", []float64{.3, .7}, []time.Duration{0, 0}, []float64{29.2, 68.5}},
		{"asks 49, may have 50", []float64{.5, .5}, []time.Duration{ms, 0}, []float64{43.9, 39.7}},
		{"asks 49, may have 20", []float64{.2, .8}, []time.Duration{ms, 0}, []float64{20.2, 72.2}},
		{"asks 90, may have 50", []float64{.5, .5}, []time.Duration{100 * us, 0}, []float64{49.7, 32.0}},
		{"asks 90, may have 30", []float64{.3, .7}, []time.Duration{100 * us, 0}, []float64{29.9, 59.0}},
		{"asks 90, beside two", []float64{.3, .3, .4}, []time.Duration{100 * us, 0, 0}, []float64{30.0, 25.4, 33.8}},
		{"asks 49, beside two", []float64{.2, .3, .5}, []time.Duration{ms, 0, 0}, []float64{20.2, 27.1, 44.9}},
		{"two and two", []float64{.25, .25, .25, .25}, []time.Duration{ms, 100 * us, 0, 0}, []float64{24.9, 25.1, 18.4, 18.7}},
	} {
		var groups []*Group
		for _, host := range c.hosts {
			if host == 0 {
				groups = append(groups, always(ms))
			} else {
				groups = append(groups, &Group{Load: Load{Work: ms, Host: host}, Slice: ms})
			}
		}
		for i, had := range play(NewGPU(change, groups...), c.shares, &share.Rule{}, 20) {
			near(t, c.name, had, c.want[i], 2)
		}
	}
}

// The machine's figures: requests of 5.0, 1.05 and 19.8 ms beside two that always have work, one of which is on for 100 ms in turn, slices of 50 us.
func TestRequestsBesideTurnsWaitAsOnTheMachine(t *testing.T) {
	for _, c := range []struct {
		request  time.Duration
		p50, p99 float64
	}{
		{5 * ms, 5.24, 5.52},
		{1050 * us, 1.29, 0}, // its p99 is of requests that come while a turn is changed, which is not played
		{19820 * us, 20.09, 20.61},
	} {
		r := &Group{Load: Load{Work: c.request, Host: 40 * ms, Varied: true}, Slice: 100 * ms}
		g := NewGPU(change, r, always(50*us), always(50*us))
		runTurns(g, share.Plan{Turns: []share.Turn{{Tenant: 1, For: 100 * ms}, {Tenant: 2, For: 100 * ms}}}, 60*time.Second)
		near(t, "p50", quantile(r.Waits, .5), c.p50, c.p50*.05)
		if c.p99 > 0 {
			near(t, "p99", quantile(r.Waits, .99), c.p99, c.p99*.1)
		}
	}
}

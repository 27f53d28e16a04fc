// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

// A request each 40 ms, or half to one and a half of what is left of it, so that it meets the others' turns anywhere.
const (
	periodMS  = 40
	ofLatency = 60 // percent: 20 ms of 40 are 50
)

// mostTimes are how much longer the p99 may be than alone, beside one batch and beside more.
var mostTimes = []struct{ ms, besideOne, besideMore float64 }{{1, 1.15, 0}, {5, 1.05, 1.10}, {20, 1.02, 0}}

// latency has each length of request alone and beside one, two and three batches, by turns.
func (t *trial) latency() (cases []trialCase) {
	for _, r := range mostTimes {
		cases = append(cases, trialCase{fmt.Sprintf("requests of %.0f ms", r.ms), func(t *trial) {
			alone := t.requests(r.ms, 0, 0, 0)
			t.requests(r.ms, 1, alone, r.besideOne)
			t.requests(r.ms, 2, alone, r.besideMore)
			t.requests(r.ms, 3, alone, r.besideMore)
		}})
	}
	return cases
}

func (t *trial) requests(ms float64, batches int, alone, most float64) (p99 float64) {
	wants := []want{{load: fmt.Sprintf("ms=%g host=%g jit=1", ms, periodMS-ms), share: ofLatency, options: "--vgpu-priority=latency " + elasticOf(ofLatency)}}
	for range batches {
		wants = append(wants, want{load: "ms=20", share: float64((100 - ofLatency) / batches), options: "--vgpu-priority=batch " + elasticOf((100-ofLatency)/batches)})
	}
	all := t.start(wants...)
	letGo(all...)
	t.pause(settling)
	seconds := float64(t.asked) * periodMS / 1e3
	if t.simulated {
		seconds = t.seconds
	}
	f := t.window(seconds, all...)
	t.cancelAll()
	what := fmt.Sprintf("requests of %g ms beside %d", ms, batches)
	p99 = f.p99MS[0]
	if batches == 0 {
		t.row(what, append([]string{"baseline", ""}, f.columns()...)...)
		return p99
	}
	left := 100 - f.had[0] - 3
	said := "no demand"
	if most > 0 {
		said = verdict(p99 <= most*alone)
	}
	t.row(what, append([]string{said, fmt.Sprintf("p99 %.3f of alone, the batches had %.1f of %.1f: %s", p99/alone, sum(f.had[1:]), left, verdict(sum(f.had[1:]) >= left))},
		f.columns()...)...)
	return p99
}

func elasticOf(percent int) string {
	return fmt.Sprintf("--vgpu-cores=%d --vgpu-policy=elastic", percent)
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
)

const (
	full       = 97.0 // percent by the GPU's counters: below it who has what of several is not known, only the sum
	pointsFull = 1.0
	pointsOf   = 2.0 // where the decision on time from outside says so: beside others, turns are taken off
)

// count holds what vgpud counted against kernels and the GPU's counters: alone, in pairs and in threes, host-bound and idle.
func (t *trial) count() (cases []trialCase) {
	for _, loads := range [][]string{
		{"ms=2"}, {"ms=0.1 depth=16"}, {"ms=20"}, {"ms=1 host=1"}, {"ms=1 host=5"}, {"ms=0.3 host=3 jit=1"}, {"idle"},
		{"ms=2", "ms=2"}, {"ms=20", "ms=0.5"}, {"ms=1 host=1", "ms=2"}, {"ms=1 host=5", "ms=0.1 depth=16"}, {"ms=1 host=5", "ms=1 host=5"}, {"ms=2", "idle"},
		{"ms=2", "ms=2", "ms=2"}, {"ms=1 host=1", "ms=2", "ms=20"}, {"ms=1 host=5", "ms=0.3 host=3", "idle"},
	} {
		cases = append(cases, trialCase{strings.Join(loads, " + "), func(t *trial) { t.countOf(loads) }})
	}
	return cases
}

func (t *trial) countOf(loads []string) {
	var wants []want
	for _, load := range loads {
		w := want{load: load, share: float64(100 / len(loads))}
		if load == "idle" {
			w.load = "ms=2"
		}
		wants = append(wants, w)
	}
	all := t.start(wants...)
	for i, load := range loads {
		if load == "idle" {
			all[i].active = 0
		}
	}
	f := t.measure(all...)
	most, worst := pointsFull, 0.0
	if len(all) > 1 {
		most = pointsOf
	}
	for i, had := range f.had {
		counted := f.byVgpud[i]
		if loads[i] == "idle" && math.IsNaN(counted) {
			counted = 0 // its page stays as it is
		}
		worst = max(worst, math.Abs(counted-had))
	}
	said := verdict(worst <= most)
	total := 0.0
	for _, percent := range f.byVgpud {
		if !math.IsNaN(percent) {
			total += percent
		}
	}
	if at := atWork(all); at > 1 && f.gpm < full {
		said = "the sum: " + verdict(math.Abs(f.gpm-total) <= most)
	}
	t.row(strings.Join(loads, " + "), append([]string{said, fmt.Sprintf("flags %v, a tenant off by %.2f at most, the sum %.2f by vgpud, GPM less that %.2f", f.flags, worst, total, f.gpm-total)},
		f.columns()...)...)
}

// atWork is how many of them do anything.
func atWork(all []*job) (n int) {
	for _, j := range all {
		if j.active > 0 {
			n++
		}
	}
	return n
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

var sharesOfElastic = [][]float64{{30, 70}, {50, 50}, {20, 30, 50}, {10, 30, 60}, {25, 25, 25, 25}, {10, 10, 10, 10, 10, 10, 10, 10, 10, 10}}

// loads are kinds of work: plain, a queue of tiny kernels, short, middle and long ones, and PyTorch's.
func (t *trial) loads() []string {
	plain := []string{"ms=2", "ms=0.1 depth=16", "ms=0.5", "ms=5", "ms=20", "ms=40"}
	if t.simulated {
		return plain[:2]
	}
	return append(plain, "torch=mlp", "torch=train", "torch=decode")
}

func (t *trial) smoke() []trialCase {
	return []trialCase{{"30 70", func(t *trial) {
		parent, worker := t.vgpuds()
		t.row("before any job", fmt.Sprintf("vgpud's parent %d, worker %d", parent, worker))
		t.weigh("ms=2", 30, 70)
		parent, worker = t.vgpuds()
		t.row("vgpud", verdict(parent != 0 && worker != 0), fmt.Sprintf("parent %d, worker %d", parent, worker), strings.Join(t.logged(0), "; "))
	}}}
}

func (t *trial) weights() (cases []trialCase) {
	for _, load := range t.loads() {
		for _, shares := range sharesOfElastic {
			if strings.HasPrefix(load, "torch=") && len(shares) > 3 {
				continue // each takes GiBs of the host's memory and seconds of all its cores to begin
			}
			cases = append(cases, trialCase{fmt.Sprintf("%s: %v", load, shares), func(t *trial) { t.weigh(load, shares...) }})
		}
	}
	return cases
}

// weigh lets jobs of one load have shares. PyTorch's do not fill the GPU by their own count of steps; there the counter is vgpud.
func (t *trial) weigh(load string, shares ...float64) {
	f := t.measure(t.start(elastic(load, shares...)...)...)
	had, least := f.had, 97.0
	switch {
	case strings.HasPrefix(load, "torch="):
		had, least = f.byVgpud, 0
	case strings.HasPrefix(load, "ms=0.1"):
		least = 95
	}
	near, worst := isNear(had, shares, 1)
	t.row(fmt.Sprintf("%s: %v", load, shares), append([]string{verdict(near && sum(had) >= least), fmt.Sprintf("off by %.1f at most", worst)}, f.columns()...)...)
}

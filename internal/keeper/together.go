// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"cmp"
	"slices"
)

// seeTurns notes tenants that have turns of their own and do not use them.
func (g *gpu) seeTurns() {
	for i, t := range g.tenants {
		due := t.due
		if most := t.cap(); most > 0 {
			due = min(due, most)
		}
		t.apart = max(0, t.apart-1)
		if !g.plan.Together || !g.plan.Has(i) || t.known.Used >= passes*due {
			t.passed = 0
			continue
		}
		if t.passed++; t.passed >= passed {
			t.passed, t.apart = 0, apart
		}
	}
}

// spanning are the places of the tenants that are to have turns on this GPU at the same time as on others. Their jobs work on several GPUs on which other jobs
// work as well. They are in the order of their jobs. gpus is how many GPUs of the node have such tenants.
func (k *keeper) spanning(g *gpu) (first []int, gpus int) {
	on := map[uint32]int{} // GPUs, by job
	for _, other := range k.gpus {
		if other.isShared() {
			for _, t := range other.tenants {
				if t.apart == 0 {
					on[t.Job] += min(1, t.known.Groups)
				}
			}
		}
	}
	spans := func(t *tenant) bool { return t.known.Groups > 0 && t.apart == 0 && on[t.Job] > 1 }
	for _, other := range k.gpus {
		if other.isShared() && slices.ContainsFunc(other.tenants, spans) {
			gpus++
		}
	}
	if !g.isShared() {
		return nil, gpus
	}
	for i, t := range g.tenants {
		if spans(t) {
			first = append(first, i)
		}
	}
	slices.SortFunc(first, func(a, b int) int { return cmp.Compare(g.tenants[a].Job, g.tenants[b].Job) })
	return first, gpus
}

// isShared says that several tenants work on a GPU, and none of them goes first.
func (g *gpu) isShared() bool {
	working := 0
	for _, t := range g.tenants {
		if t.goesFirst {
			return false
		}
		working += min(1, t.known.Groups)
	}
	return g.log != nil && working > 1
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Whatever lies on the GPUs, what fits for sure fits on one of them, and nothing larger fits than may.
func TestFitsHoldsForEveryPlacement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const size, perGPU = 1000, 4
		gpus := rapid.IntRange(1, 6).Draw(t, "gpus")
		has := request.Entitlement{Slices: gpus * perGPU, MemMiB: int64(gpus) * size, SMPercent: 100 * gpus}
		var used request.Entitlement
		largest := int64(0)
		for range gpus {
			free, cores := int64(size), 0
			count := rapid.IntRange(0, perGPU).Draw(t, "slices")
			for range count {
				mib := rapid.Int64Range(0, free).Draw(t, "mib")
				percent := rapid.IntRange(0, 100-cores).Draw(t, "percent")
				free, cores = free-mib, cores+percent
				used.MemMiB, used.SMPercent, used.Slices = used.MemMiB+mib, used.SMPercent+percent, used.Slices+1
				if count == 1 && percent == 100 {
					cores = 100
				}
			}
			exclusive := cores == 100 && count == 1
			if count < perGPU && !exclusive {
				largest = max(largest, free)
			}
		}
		surely, maybe := fits(has, used)
		if surely > largest || largest > maybe || surely < 0 {
			t.Fatalf("%d fits, said %d..%d of %+v with %+v used", largest, surely, maybe, has, used)
		}
	})
}

func TestFitsOfAnEmptyNodeIsAGPU(t *testing.T) {
	has := request.Entitlement{Slices: 20, MemMiB: 287542, SMPercent: 200}
	if surely, maybe := fits(has, request.Entitlement{}); surely != 143771 || maybe != 143771 {
		t.Errorf("%d..%d", surely, maybe)
	}
	if surely, maybe := fits(has, request.Entitlement{Slices: 1, MemMiB: 143000, SMPercent: 30}); surely != 72271 || maybe != 143771 {
		t.Errorf("%d..%d", surely, maybe)
	}
}

func TestTakesJobs(t *testing.T) {
	for state, want := range map[string]bool{"idle": true, "mixed": true, "mixed-": true, "idle~": true, "idle*": false, "drained": false, "drained*": false,
		"down": false, "reserved": false, "planned": true} {
		if got := takesJobs(state); got != want {
			t.Errorf("%s: %v", state, got)
		}
	}
}

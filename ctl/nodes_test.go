// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
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

// Two GPUs of 1000 MiB, and one node that takes no jobs: halves, thirds by time, and slices of 300 MiB.
func TestSizesThatFit(t *testing.T) {
	cfg := config.Default()
	cfg.Sizes = map[string]map[string]any{"half": {"mem": "50%", "cores": 50}, "third": {"cores": 34}, "s": {"mem": 300}, "free": {"mem": "10%", "cores": 0}, "vast": {"mem": "2G"}}
	has := request.Entitlement{Slices: 20, MemMiB: 2000, SMPercent: 200}
	for _, c := range []struct {
		state string
		used  request.Entitlement
		want  map[string]int
	}{
		{"idle", request.Entitlement{}, map[string]int{"half": 4, "third": 4, "s": 6, "free": 20, "vast": 0}},
		{"mixed", request.Entitlement{Slices: 1, MemMiB: 500, SMPercent: 50}, map[string]int{"half": 3, "third": 4, "s": 5, "free": 15, "vast": 0}},
		{"mixed", request.Entitlement{Slices: 18, MemMiB: 900, SMPercent: 170}, map[string]int{"half": 0, "third": 0, "s": 2, "free": 2, "vast": 0}},
		{"drained", request.Entitlement{}, map[string]int{"half": 0, "third": 0, "s": 0, "free": 0, "vast": 0}},
	} {
		status := clusterStatus{Nodes: []clusterNode{clusterNodeOf(slurm.Node{Name: "n1", State: c.state, Has: has, Used: c.used})}}
		status.countSizes(cfg)
		if diff := cmp.Diff(c.want, status.Nodes[0].Sizes); diff != "" {
			t.Errorf("%s, %+v used: %s", c.state, c.used, diff)
		}
	}
	// Of a smaller GPU a share of the largest does not fit.
	small := clusterNodeOf(slurm.Node{Name: "a1", State: "idle", Has: request.Entitlement{Slices: 10, MemMiB: 400, SMPercent: 100}})
	status := clusterStatus{Nodes: []clusterNode{clusterNodeOf(slurm.Node{Name: "n1", State: "idle", Has: has}), small}}
	status.countSizes(cfg)
	if got := status.Nodes[1].Sizes; got["half"] != 0 || got["s"] != 1 {
		t.Errorf("%v", got)
	}
	var out strings.Builder
	printCluster(&out, status)
	if !strings.Contains(out.String(), "of each size fit at most:\nNODE  free  half  s  third  vast\nn1    20    4     6  4      0\na1    4     0     1  2      0\n") {
		t.Errorf("%s", out.String())
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

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// A slice keeps to the shards that Slurm has counted, of memory and of time.
func TestNoSliceOutgrowsItsShards(t *testing.T) {
	for name, tc := range map[string]struct {
		all, shards              int64
		mem, cores, will, wCores int
		says                     string
	}{
		"no shards":                         {1000, 0, 100, 0, 900, 0, ""},
		"within":                            {1000, 300, 100, 30, 300, 30, ""},
		"more memory":                       {1000, 300, 100, 30, 301, 30, "shard:300 of its 1000 for the job, and sends others to what is left: the most is 300 MiB or 30 % without --force"},
		"more time":                         {1000, 300, 100, 30, 100, 31, "the most is 300 MiB or 30 %"},
		"less of what was forced":           {1000, 300, 900, 0, 800, 0, ""},
		"more of what was forced":           {1000, 300, 800, 0, 900, 0, "shard:300"},
		"half of an odd number":             {143771, 71885, 100, 40, 100, 50, ""},
		"more than half of an odd number":   {143771, 71885, 100, 50, 100, 51, "the most is 71885 MiB or 50 %"},
		"no cap, as jobs that ask for none": {1000, 300, 100, 30, 300, 0, ""},
	} {
		inv := device.Inventory{GPUs: []device.GPU{{UUID: "GPU-a", MemMiB: tc.all}}}
		was := device.Slice{Device: "GPU-a", MemMiB: int64(tc.mem), SMPercent: tc.cores}
		will := device.Slice{Device: "GPU-a", MemMiB: int64(tc.will), SMPercent: tc.wCores}
		err := beyondShards(config.Config{MemOvercommit: 1}, inv, tc.shards, was, will)
		if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
}

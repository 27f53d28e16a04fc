// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// sampledSlice is what `vgpuctl explain --json` tells of the slice of a job that has ended.
type sampledSlice struct {
	GPUSeconds *float64 `json:"gpu_seconds"`
	Source     string   `json:"gpu_time_source"`
	Timeline   []struct {
		AtUnixS int64 `json:"t"`
		UsedMiB int64 `json:"mem_mib"`
		BusyMs  int64 `json:"busy_ms"`
	} `json:"timeline"`
}

// A slice without a share, which nobody meters, has the GPU time that the driver's samples tell of: what its kernels took, by their known
// length, until the last look. Its record has that over time.
func TestGPUTimeWithoutAShare(t *testing.T) {
	begin(t)
	vgpuctl := "vgpuctl --config " + c.ConfigPath() + " --node n1 "
	program, line := busyIn(t, one, "free")
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000", line)
	var before []float64
	until(t, "some seconds of work, looked at", 60*time.Second, func() error {
		before = program.seconds()
		ok(t, root, vgpuctl+"sample")
		if len(before) < 3 {
			return fmt.Errorf("it told %v", before)
		}
		return nil
	})
	if out := ok(t, root, vgpuctl+"status").Stdout; !strings.Contains(out, "~") {
		t.Errorf("status does not say that GPU time is estimated: %s", out)
	}
	program.end()
	finish(t, one, job)
	_, most := program.sum()
	least := 0.0
	for _, share := range before {
		least += share / 100
	}

	d := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]
	if len(d) != 1 || d[0].GPUSeconds == nil {
		t.Fatalf("AdminComment: %s", account(t, job, "AdminComment"))
	}
	if !strings.Contains(account(t, job, "AdminComment"), `"sampled":true`) {
		t.Errorf("AdminComment does not say that it is estimated: %s", account(t, job, "AdminComment"))
	}
	// The driver tells of whole samples, of a fifth of a second each.
	if gpu := *d[0].GPUSeconds; gpu < least*0.95-0.4 || gpu > most*1.05+0.4 {
		t.Errorf("gpu_s is %.2f; kernels of %.2f s had run before the last look, and of %.2f s in the end", gpu, least, most)
	}

	var ended struct {
		Slices []sampledSlice `json:"slices"`
	}
	result := ok(t, root, vgpuctl+"explain --json "+job)
	if err := json.Unmarshal([]byte(result.Stdout), &ended); err != nil || len(ended.Slices) != 1 {
		t.Fatalf("%v: %s", err, result)
	}
	slice, sum := ended.Slices[0], int64(0)
	for i, point := range slice.Timeline {
		sum += point.BusyMs
		if i > 0 && point.AtUnixS < slice.Timeline[i-1].AtUnixS {
			t.Errorf("point %d is before the one before it: %+v", i, slice.Timeline)
		}
	}
	if n := len(slice.Timeline); slice.Source != "sampled" || n == 0 || n > 240 || slice.GPUSeconds == nil || !near(float64(sum)/1000, *slice.GPUSeconds, 0, 0.01) {
		t.Errorf("its record has %d points of %d ms: %s", n, sum, result.Stdout)
	}
}

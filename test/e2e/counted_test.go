// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// countedSlice is what `vgpuctl explain --json` tells of the slice of a job that has ended.
type countedSlice struct {
	GPUSeconds *float64 `json:"gpu_seconds"`
	Timeline   []struct {
		AtUnixS int64 `json:"t"`
		BusyMs  int64 `json:"busy_ms"`
	} `json:"timeline"`
}

// What vgpud has counted, here of a slice without a share, is what its user reads in sacct and in reports: the time that its kernels took, by their
// known length. Its record has that over time. The user himself can write nothing into root's page.
func TestWhatVgpudCountedIsAccounted(t *testing.T) {
	needVgpud(t)
	begin(t)
	program, line := busyIn(t, one, "counted")
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000", `
		page=`+runDir("pages")+`/$SLURM_JOB_ID/time
		[ -r $page ] && ! dd if=/dev/zero of=$page bs=64 count=1 conv=notrunc && ! rm -f $page && ! mv $page $page.old && echo safe
		`+line)
	until(t, "some seconds of work, looked at", 60*time.Second, func() error {
		ok(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 sample") // vgpud's part
		if told := program.seconds(); len(told) < 3 {
			return fmt.Errorf("it told %v", told)
		}
		return nil
	})
	program.end()
	if out := finish(t, one, job); !strings.Contains(out, "safe") {
		t.Errorf("in the job: %s", out)
	}
	_, took := program.sum()
	d := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]
	if len(d) != 1 || d[0].GPUSeconds == nil {
		t.Fatalf("AdminComment: %s", account(t, job, "AdminComment"))
	}
	gpu := *d[0].GPUSeconds
	if gpu < took*0.9-0.4 || gpu > took*1.1+0.4 {
		t.Errorf("gpu_s is %.2f; its kernels took %.2f s", gpu, took)
	}

	var ended struct {
		Slices []countedSlice `json:"slices"`
	}
	result := ok(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 explain --json "+job)
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
	if n := len(slice.Timeline); n == 0 || n > 240 || slice.GPUSeconds == nil || !near(float64(sum)/1000, *slice.GPUSeconds, 0, 0.01) {
		t.Errorf("its record has %d points of %d ms: %s", n, sum, result.Stdout)
	}
	until(t, "the report of the ended job, on another node", 60*time.Second, func() error {
		if told := run(t, one, reportCommand("n2", job)); !strings.Contains(told.Stdout, fmt.Sprintf(" %.1f s of GPU time", gpu)) {
			return errors.New(told.String())
		}
		return nil
	})
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// statusSlice is what `vgpuctl status --json` tells of a slice; nil is what it does not tell, or not to this user.
type statusSlice struct {
	Job           uint32   `json:"job"`
	UsedMiB       *int     `json:"used_mib"`
	PeakMiB       *int     `json:"peak_mib"`
	DriverMiB     *int     `json:"driver_mib"`
	Processes     *int     `json:"driver_processes"`
	DifferenceMiB *int     `json:"difference_mib"`
	GPUSeconds    *float64 `json:"gpu_seconds"`
	SharePercent  *float64 `json:"share_percent"`
	Over          *float64 `json:"share_over_seconds"`
}

// statusOf is that of a job's first slice on n1.
func statusOf(t *testing.T, u cluster.User, job, options string) statusSlice {
	t.Helper()
	var node struct {
		DriverProblem string        `json:"driver_problem"`
		Slices        []statusSlice `json:"slices"`
	}
	said := ok(t, u, "vgpuctl --config "+c.ConfigPath()+" --node n1 status --json "+options).Stdout
	if err := json.Unmarshal([]byte(said), &node); err != nil || node.DriverProblem != "" {
		t.Fatalf("%v: %s", err, said)
	}
	for _, s := range node.Slices {
		if fmt.Sprint(s.Job) == job {
			return s
		}
	}
	t.Fatalf("no slice of job %s: %s", job, said)
	return statusSlice{}
}

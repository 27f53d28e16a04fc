// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"io/fs"
	"os"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sample(job uint32) usage.Record {
	peak := usage.StepFigures{PeakMiB: new(int64(2998)), Refusals: new(uint64(1))}
	return usage.Record{
		Version: usage.RecordVersion, Job: job, Node: "n1", UID: 1001, Start: noon, End: noon.Add(time.Hour),
		Request: "mem=3000;cores=30", Entitlement: request.Entitlement{Slices: 1, MemMiB: 3000, SMPercent: 30},
		Devices: []usage.Device{{Device: "GPU-aa", MemMiB: 3000, SMPercent: 30, Figures: usage.Figures{StepFigures: peak, Time: usage.Time{GPUSeconds: new(12.5)}}}},
		Steps:   []usage.Step{{Step: "batch", Devices: []usage.StepFigures{peak}}},
	}
}

func mustWrite(t *testing.T, spool rundir.Spool, records ...usage.Record) {
	t.Helper()
	for _, rec := range records {
		if err := usage.Write(spool, rec); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	list := []string{}
	for _, entry := range entries {
		if entry.Name() != ".lock" {
			list = append(list, entry.Name())
		}
	}
	return list
}

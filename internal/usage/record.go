// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package usage is what a job used on this node: folded from its steps into usage.json while it
// runs, and in the record that vgpu-epilog leaves in the spool. Slurm's processes load this package:
// it must import neither the configuration nor the logging.
package usage

import (
	"errors"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
)

// RecordVersion is the layout of a usage record.
const RecordVersion = 1

// maxRecordBytes bounds a record file: 16 devices of 256 steps are some 300 KiB, and their timelines as much.
const maxRecordBytes = 1 << 20

// ErrRecord is wrapped when a file in the spool is no usage record of this layout.
var ErrRecord = errors.New("not a usage record of this version")

// Record is one run of one job on this node.
type Record struct {
	Version     int                 `json:"version"`
	Job         uint32              `json:"job"` // each task of an array has its own
	Restart     int                 `json:"restart"`
	Node        string              `json:"node"`
	UID         uint32              `json:"uid"`
	Submitted   time.Time           `json:"submitted,omitzero"` // as the run's row in the accounting database has it
	Start       time.Time           `json:"start"`              // when the slices were granted
	End         time.Time           `json:"end"`                // when they were released
	Request     string              `json:"request"`
	Policy      request.Policy      `json:"policy,omitempty"` // what was granted; "": by an earlier release
	Entitlement request.Entitlement `json:"entitlement"`
	Refusal     string              `json:"refusal,omitempty"`  // set: nothing was granted, and this is why
	Requeued    bool                `json:"requeued,omitempty"` // the refused job went back into the queue
	Devices     []Device            `json:"devices"`
	Steps       []Step              `json:"steps,omitempty"`
	// Backfill says that slurmctld has a text of the job in the field, and be it an empty one: 24.11 writes that into the row once more when it
	// is restarted or reconfigured, over what stands there, as long as it knows the job.
	Backfill bool `json:"backfill,omitempty"`
	// PutBack is when the report came back into the spool, because slurmctld may have written over it.
	PutBack time.Time `json:"put_back,omitzero"`
	// Outcome is what became of the report, in words; empty while it waits in the spool.
	Outcome string `json:"outcome,omitempty"`
	// Later is what a later build has written besides, in the places where it stood; nil: nothing. Whoever writes the record again keeps it.
	Later any `json:"-"`
}

// Device is one slice: what was granted and what was used of it.
type Device struct {
	Device    device.UUID      `json:"device"`
	Index     device.NVMLIndex `json:"nvml_index"`
	MemMiB    int64            `json:"mem_mib"`
	SMPercent int              `json:"sm_percent"`
	Priority  device.Priority  `json:"priority,omitempty"`
	Figures
	// IdleSeconds is the longest time without GPU time, where the site calls that idle.
	IdleSeconds int64 `json:"idle_seconds,omitempty"`
	// Earlier are the limits that it had before they were changed.
	Earlier []device.Limit `json:"earlier,omitempty"`
	// Timeline is its use over time, oldest first; at most timeline.MaxRecorded points.
	Timeline []timeline.Point `json:"timeline,omitempty"`
}

// Step is one step's part, in the order of the record's devices.
type Step struct {
	Step    string        `json:"step"` // "0", "batch", …
	Devices []StepFigures `json:"devices"`
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package grant is a job's request placed on devices, as vgpu-prolog records it in grant.json
// and the SPANK plugin reads it, and its narrowing to one step. Slurm's processes load this
// package: it must import neither the configuration nor the logging.
package grant

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Isolation levels.
const (
	IsolationWall    = "wall"    // strict, and the driver holds the job's cgroup to its memory
	IsolationStrict  = "strict"  // private mount namespace, ld.so.preload bound, other GPUs masked
	IsolationPreload = "preload" // LD_PRELOAD in the environment only
)

// Version is the layout of grant.json.
const Version = 1

// Grant is what one job holds on this node, or why it holds nothing.
// The plugin needs no other file than this one: everything that it must know stands here.
type Grant struct {
	Version     int                 `json:"version"`
	Job         uint32              `json:"job"`
	Restart     int                 `json:"restart"`
	SLUID       string              `json:"sluid,omitempty"` // Slurm's name of the run, from 25.11 on
	BootID      string              `json:"boot_id"`
	UID         uint32              `json:"uid"`
	GID         uint32              `json:"gid"`
	Account     string              `json:"account,omitempty"` // in Slurm's accounting; "": not known
	Node        string              `json:"node"`
	Since       time.Time           `json:"since"`
	Submitted   time.Time           `json:"submitted,omitzero"` // Slurm's word on this run, for its row in the accounting
	Ends        int64               `json:"ends,omitempty"`     // when the job's time limit is over, as the slices were granted, in seconds since 1970; 0: not known
	HasText     bool                `json:"has_text,omitempty"` // slurmctld has an AdminComment or Extra of the job (usage.Record)
	Request     string              `json:"request"`            // canonical form, request.Decode reads it
	Entitlement request.Entitlement `json:"entitlement"`
	Shards      int64               `json:"shards,omitempty"` // by which Slurm picked the slice's GPU; 0: it did not
	// BySlurm says that Slurm picked the GPUs, where shards is on: of whole ones Shards does not say it. Builds before this key did not write it.
	BySlurm *bool          `json:"by_slurm,omitempty"`
	Slices  []device.Slice `json:"slices"`
	// Earlier are the limits that slices had before they were changed, the oldest first: for the report. Nothing is decided by them, and
	// a grant that is made again from the state has none.
	Earlier  map[device.UUID][]device.Limit `json:"earlier,omitempty"`
	Refusal  string                         `json:"refusal,omitempty"`  // set: nothing was granted, and this is why
	Requeued bool                           `json:"requeued,omitempty"` // the refused job went back into the queue

	Isolation          string         `json:"isolation"`
	Library            string         `json:"library"`                        // absolute path of libslurm-vgpu.so
	Guards             []Guard        `json:"guards,omitempty"`               // strict isolation and wall
	DenyUserNamespaces bool           `json:"deny_user_namespaces,omitempty"` // strict isolation and wall
	WallCommand        []string       `json:"wall_command,omitempty"`         // wall only: raises it, given the job and its cgroup
	DeviceDir          string         `json:"device_dir"`                     // where nvidiaN stand; /dev except in tests
	MaskMinors         []device.Minor `json:"mask_minors"`
	StepDevices        string         `json:"step_devices,omitempty"` // where the files of nvidiaN are that steps are given over those in device_dir; "": none
	// Whole says that the slices are whole GPUs, or none at all: nothing is loaded into the job, only other GPUs are masked.
	Whole       bool           `json:"whole,omitempty"`
	Numbers     []int          `json:"numbers,omitempty"` // Slurm's of whole GPUs, in slice order
	Policy      request.Policy `json:"policy"`
	FailOpen    bool           `json:"fail_open"`     // a failed limit lookup lets the program run unlimited
	NodeGPUsMiB []int64        `json:"node_gpus_mib"` // total memory of each slice's device, in slice order
	GPUTypes    []string       `json:"gpu_types"`     // GRES type of each slice's device, in slice order
}

// PickedBy says whether Slurm picked the GPUs, and whether that is known.
func (g Grant) PickedBy() (slurm, known bool) {
	if g.BySlurm != nil {
		return *g.BySlurm, true
	}
	return g.Shards > 0, g.Shards > 0 || !g.Whole
}

// IsSameRun says that two grants are of one run of one job. Number and restart count alone do not say so: slurmctld may begin anew with
// its numbers. The allocation is compared only where the time of submission is not known, as it may change while the job runs.
func (g Grant) IsSameRun(other Grant) bool {
	switch {
	case g.Job != other.Job || g.Restart != other.Restart || g.UID != other.UID:
		return false
	case other.Submitted.IsZero() && other.Entitlement.IsZero(): // the controller says nothing
		return true
	case g.SLUID != "" && other.SLUID != "":
		return g.SLUID == other.SLUID
	case !g.Submitted.IsZero() && !other.Submitted.IsZero():
		return g.Submitted.Equal(other.Submitted)
	}
	return g.Entitlement == other.Entitlement
}

// IsStrict says that the steps have mount namespaces of their own.
func (g Grant) IsStrict() bool { return g.Isolation == IsolationStrict || g.Isolation == IsolationWall }

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics is what `vgpuctl metrics` prints and vgpu-exporter makes series of. docs/metrics.md has what each of them means.
package metrics

import (
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
)

// Node has the figures of a node. A figure that is not known is nil, and is no series then: 0 would be a figure.
type Node struct {
	Version string  `json:"version"`
	GPUs    []GPU   `json:"gpus"`
	Slices  []Slice `json:"slices"`
	Waiting int     `json:"waiting"`
	Records Records `json:"records"`
	// Refusals are how often no slice was placed since boot, by why.
	Refusals map[string]uint64 `json:"refusals"`
	Prologs  Histogram         `json:"prologs"`
	// Sources say which of what the figures are made of could be read.
	Sources map[string]bool `json:"sources"`
	// VgpudRuns: vgpud keeps shares here, or should; nil: it need not be there, or that is not known.
	VgpudRuns *bool `json:"vgpud_runs,omitempty"`
	// Users may be named (metrics_users).
	Users bool `json:"users"`
}

// Records are the usage records that have not reached the accounting database.
type Records struct {
	Waiting       int     `json:"waiting"`
	OldestSeconds float64 `json:"oldest_seconds"` // since its run ended
}

// GPU is one of the node's.
type GPU struct {
	device.GPU
	State        string  `json:"state"` // ok, draining, exclusive, lost; slurm: Slurm hands it out by itself
	GrantedBytes uint64  `json:"granted_bytes"`
	Slices       int     `json:"slices"`
	MaxSlices    int     `json:"max_slices"`
	GrantedRatio float64 `json:"granted_ratio"` // of its time
	// Unmetered is held by processes without a slice of it; nil: not known.
	Unmetered *Held `json:"unmetered,omitempty"`
}

// Held is what some processes hold of a GPU.
type Held struct {
	Bytes     uint64 `json:"bytes"`
	Processes int    `json:"processes"`
}

// Slice is one job's slice of one GPU.
type Slice struct {
	Job        uint32     `json:"job"`
	UID        uint32     `json:"uid"`
	User       string     `json:"user"`
	Account    string     `json:"account"` // "": not known
	GPU        device.GPU `json:"gpu"`
	LimitBytes uint64     `json:"limit_bytes"`
	ShareRatio float64    `json:"share_ratio"` // 0: no cap
	Policy     string     `json:"policy"`      // cap, elastic
	Priority   string     `json:"priority"`    // latency, normal, batch
	Isolation  string     `json:"isolation"`   // strict, preload; whole: Slurm's own whole GPU
	Use        *Use       `json:"use,omitempty"`
	Steps      []Step     `json:"steps"`
	// DriverBytes is what the driver says that the job's processes hold.
	DriverBytes *uint64 `json:"driver_bytes,omitempty"`
	// DutyRatio is the time used of the time that the slice is entitled to, over some seconds until now.
	DutyRatio *float64 `json:"duty_ratio,omitempty"`
	// Counted is what vgpud does with it; nil: it has not looked at it.
	Counted *Counted `json:"counted,omitempty"`
}

// Counted is what vgpud says of a slice.
type Counted struct {
	GPUSeconds     float64 `json:"gpu_seconds"`
	UnknownSeconds float64 `json:"unknown_seconds"` // of which nobody counted what was used
	Freezes        uint32  `json:"freezes"`
	IsFrozen       bool    `json:"is_frozen"`
}

// Step is one step's part of a slice.
type Step struct {
	Name string `json:"name"`
	Use  Use    `json:"use"`
}

// Use is what a ledger says.
type Use = ledger.DeviceUsage

// Bucket counts what took at most so long.
type Bucket struct {
	Seconds float64 `json:"seconds"`
	Count   uint64  `json:"count"`
}

// Histogram counts how long something took.
type Histogram struct {
	Count   uint64   `json:"count"`
	Seconds float64  `json:"seconds"`
	Buckets []Bucket `json:"buckets"`
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package metrics says of a node in Prometheus' text format what its caller knows of it. It reads nothing by itself.
// docs/metrics.md has what each series means.
package metrics

import (
	"fmt"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

// Node is what is known of a node. What is not known is nil, and is no series then: 0 would be a figure.
type Node struct {
	Version string
	GPUs    []GPU
	Slices  []Slice
	Waiting int
	Records Records
	// Refusals are how often no slice was placed since boot, by why.
	Refusals map[string]uint64
	Prologs  Histogram
	// Sources say which of what the figures are made of could be read.
	Sources map[string]bool
	// VgpudRuns: vgpud keeps shares here, or should; nil: it need not be there, or that is not known.
	VgpudRuns *bool
}

// Records are the usage records that have not reached the accounting database.
type Records struct {
	Waiting       int
	OldestSeconds float64 // since its run ended
}

// GPU is one of the node's.
type GPU struct {
	device.GPU
	State        string // ok, draining, exclusive, lost; slurm: Slurm hands it out by itself
	GrantedBytes uint64
	Slices       int
	MaxSlices    int
	GrantedRatio float64 // of its time
	// Unmetered is held by processes without a slice of it; nil: not known.
	Unmetered *Held
}

// Held is what some processes hold of a GPU.
type Held struct {
	Bytes     uint64
	Processes int
}

// Slice is one job's slice of one GPU.
type Slice struct {
	Job        uint32
	UID        uint32
	User       string
	Account    string // "": not known
	GPU        device.GPU
	LimitBytes uint64
	ShareRatio float64 // 0: no cap
	Policy     string  // cap, elastic
	Priority   string  // latency, normal, batch
	Isolation  string  // strict, preload; whole: Slurm's own whole GPU
	Use        *Use
	Steps      []Step
	// DriverBytes is what the driver says that the job's processes hold.
	DriverBytes *uint64
	// DutyRatio is the time used of the time that the slice is entitled to, over some seconds until now.
	DutyRatio *float64
	// Counted is what vgpud does with it; nil: it has not looked at it.
	Counted *Counted
}

// Counted is what vgpud says of a slice.
type Counted struct {
	GPUSeconds     float64
	UnknownSeconds float64 // of which nobody counted what was used
	Freezes        uint32
	IsFrozen       bool
}

// Step is one step's part of a slice.
type Step struct {
	Name string
	Use  Use
}

// Use is what a ledger says.
type Use struct {
	UsedBytes uint64
	PeakBytes uint64
	Refusals  uint64
}

// Histogram counts how long something took.
type Histogram struct {
	Count   uint64
	Seconds float64
	Buckets map[float64]uint64 // cumulative, by upper bound
}

// Options choose among the series.
type Options struct {
	Users  bool // users and accounts are named
	Steps  bool // steps have series of their own
	Compat Compat
}

// Compat are names that other exporters gave to a job's use of a GPU.
type Compat struct{ Jobstats, ComputeCanada bool }

// Names of the exporters.
const (
	Jobstats      = "jobstats"
	ComputeCanada = "computecanada"
)

// ParseCompat reads a list such as "jobstats,computecanada".
func ParseCompat(names []string) (c Compat, err error) {
	for _, name := range names {
		switch strings.TrimSpace(name) {
		case Jobstats:
			c.Jobstats = true
		case ComputeCanada:
			c.ComputeCanada = true
		default:
			return c, fmt.Errorf("--compat=%s: takes %s, %s, or both with a comma", name, Jobstats, ComputeCanada)
		}
	}
	return c, nil
}

// Any says that there is one.
func (c Compat) Any() bool { return c.Jobstats || c.ComputeCanada }

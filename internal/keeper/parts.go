// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package keeper is the loop of vgpud's worker: it follows slices and processes, keeps their shares of GPU time by the driver's calls, counts this time, and
// answers processes that get around it. README.md has the order of calls, the files by step, and the words tenant, owner, heir, scout and convict.
package keeper

import (
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// Parts are all that the loop reads and calls, so that tests can play them.
type Parts struct {
	Log      hclog.Logger
	Run      rundir.Dir
	BootID   string
	Cheaters string        // the answer to a process that cheats: a value of config.yaml
	Burst    time.Duration // GPU time that a slice of the latency class may use at once
	Driver   func() (Driver, error)
	Node     func() (Node, error) // the node's slices, and their processes with channel groups
	Sampler  func() (Sampler, error)
	StartOf  func(pid int) (ticks uint64, ok bool)
	Step     func(p Process, all bool) (Frozen, error) // the step of a process, or all steps of its job, and how these are frozen
	Refuse   func(gpu device.UUID) error               // leaves a GPU to the library
	Accept   func(gpu device.UUID) error               // takes it back
	Attached func(p Process) bool                      // whether the library in the process has a place in its job's ledger
	Changes  func() (Changes, error)
	Clock    func() time.Duration // CLOCK_MONOTONIC
}

// Driver is channels.Driver, for tests without a GPU.
type Driver interface {
	GPU(gpu GPU) (Device, error)
	Owner(pid int) (Owner, error)
	Close()
}

// Device is channels.GPU.
type Device interface {
	DeviceInstance() uint32
	Disable(disable bool, of []channels.Channel) (gone []channels.Channel, err error)
	ClockNS() (int64, error)
	OpenLog() (Log, error)
	Close()
}

// Log is channels.Log.
type Log interface {
	Poll(flush bool) (records []channels.Record, dropped uint64, err error)
	Close()
}

// Owner is channels.Owner.
type Owner interface {
	SetTimeSlice(g channels.Group, slice time.Duration) error
	Slice(g channels.Group) (time.Duration, error)
	Saves(g channels.Group) (channels.Saves, error)
	Ended() bool
	Close()
}

// Sampler is NVML. It may take its time, so that the loop never waits for it.
type Sampler interface {
	// Active is the part of the time since the last call for which a GPU's engine was at work.
	Active(gpu device.UUID) (part float64, known bool)
	// Holders are the processes with memory of a GPU, of these jobs, 0: of none; false: they are not known.
	Holders(gpu device.UUID) (pids map[int]uint32, known bool)
	// Orphans are holders of a GPU that have ended, and their possible heirs.
	Orphans(gpu device.UUID, holders map[int]uint32) Orphans
	// Only is the one process that was at work on a GPU just now; false: there was none, or several, or it is not known.
	Only(gpu device.UUID) (pid int, known bool)
	Close()
}

// Changes says that the node's slices, or their processes' groups, may have changed.
type Changes interface {
	Watch(jobs []uint32) error // whose groups pages matter
	C() <-chan struct{}
	Close()
}

// Node are the GPUs on which vgpud keeps slices' shares.
type Node struct {
	GPUs      []NodeGPU
	Processes []Process
}

// NodeGPU is a GPU with slices.
type NodeGPU struct {
	GPU
	Refused bool // the driver refuses vgpud its calls: it is left to the library
	Slices  []Slice
}

// Slice is one job's slice of a GPU.
type Slice struct {
	Job, UID  uint32
	Restart   int
	Place     int // among the job's slices
	SMPercent int // 0: no cap
	Elastic   bool
	Latency   bool // --vgpu-priority=latency, which a capped slice does not have
}

// Process is one of a job's, which /proc says it is, with what it says that it has the driver schedule.
type Process struct {
	audit.Process
	Job    uint32
	UID    uint32
	Groups []ledger.Group
	More   uint32 // groups that it has or may have, and does not name
}

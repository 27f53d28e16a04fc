// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/metrics"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/tally"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
	"github.com/slurm-vgpu/slurm-vgpu/internal/version"
)

// isolationWhole is what a job has of a GPU that Slurm gave to it whole: nothing is loaded into it.
const isolationWhole = "whole"

// sliceName tells a slice from others, and from one of another run of its job.
type sliceName struct {
	job     uint32
	restart int
	uuid    device.UUID
}

func (s sliceStatus) name() sliceName { return sliceName{s.Job, s.Restart, s.Device} }

// metricsOf puts a look into the form of package metrics.
func metricsOf(cfg config.Config, status nodeStatus, duty map[sliceName]float64) metrics.Node {
	node := metrics.Node{Version: version.Number, Users: cfg.MetricsUsers, Waiting: len(status.Waiting), Sources: make(map[string]bool)}
	for _, source := range []string{fromState, fromInventory, fromWaiting, fromDriver} {
		node.Sources[source] = !status.unreadable[source]
	}
	byUUID := make(map[device.UUID]device.GPU)
	for _, g := range status.GPUs {
		byUUID[g.UUID] = g.GPU
		gpu := metrics.GPU{GPU: g.GPU, State: g.State, GrantedBytes: bytesOf(g.GrantedMiB), Slices: g.Slices, MaxSlices: g.MaxSlices,
			GrantedRatio: float64(g.GrantedPercent) / 100}
		if g.others != nil {
			gpu.Unmetered = &metrics.Held{Bytes: g.others.Bytes, Processes: g.others.Processes}
		}
		node.GPUs = append(node.GPUs, gpu)
	}
	for _, s := range status.Slices {
		gpu, known := byUUID[s.Device]
		if !known {
			gpu = device.GPU{UUID: s.Device, Index: s.Index}
		}
		node.Slices = append(node.Slices, metricsOfSlice(s, gpu, duty))
	}
	node.VgpudRuns = status.VgpudRuns
	addCounts(cfg, &node)
	addRecords(cfg, &node)
	return node
}

func metricsOfSlice(s sliceStatus, gpu device.GPU, duty map[sliceName]float64) metrics.Slice {
	slice := metrics.Slice{Job: s.Job, UID: s.UID, User: s.User, GPU: gpu, LimitBytes: bytesOf(s.MemMiB), ShareRatio: float64(s.SMPercent) / 100,
		Priority: s.Priority.String(), Use: s.use}
	if s.grant != nil {
		slice.Account, slice.Policy, slice.Isolation = s.grant.Account, string(s.grant.Policy), s.grant.Isolation
		if s.grant.Whole {
			slice.Policy, slice.Priority, slice.Isolation = "", "", isolationWhole
		}
	}
	if s.Counted != nil {
		slice.Counted = &metrics.Counted{GPUSeconds: *s.GPUSeconds, UnknownSeconds: s.UnknownSeconds, Freezes: s.Counted.Frozen, IsFrozen: s.Counted.IsFrozen}
	}
	for _, step := range s.steps {
		if s.place < len(step.Devices) {
			slice.Steps = append(slice.Steps, metrics.Step{Name: rundir.StepName(step.Step), Use: step.Devices[s.place]})
		}
	}
	slice.Steps = oncePerName(slice.Steps)
	if s.held != nil && s.held.Unknown == "" {
		slice.DriverBytes = &s.held.Bytes
	}
	if ratio, known := duty[s.name()]; known {
		slice.DutyRatio = &ratio
	}
	return slice
}

// oncePerName leaves out what a user writes into his ledger a second time: the same series twice would be the end of all.
func oncePerName(steps []metrics.Step) []metrics.Step {
	seen := make(map[string]bool)
	return slices.DeleteFunc(steps, func(s metrics.Step) bool {
		twice := seen[s.Name]
		seen[s.Name] = true
		return twice
	})
}

// dutyBetween is what slices used between two looks of the time that they were entitled to. An elastic slice may use
// more; 1 is the most that others' names have room for.
func dutyBetween(first, second nodeStatus, span time.Duration) map[sliceName]float64 {
	before := make(map[sliceName]sliceStatus)
	for _, s := range first.Slices {
		before[s.name()] = s
	}
	duty := make(map[sliceName]float64)
	for _, s := range second.Slices {
		used, known := s.usedSince(before[s.name()])
		if !known || span <= 0 {
			continue
		}
		entitled := span.Seconds()
		if s.SMPercent > 0 {
			entitled *= float64(s.SMPercent) / 100
		}
		duty[s.name()] = min(used/entitled, 1)
	}
	return duty
}

// usedSince is the GPU time in seconds since an earlier look, where vgpud has counted all the time. Others cancel jobs that use none.
func (s sliceStatus) usedSince(then sliceStatus) (used float64, known bool) {
	passed := s.Time.Since(then.Time)
	if passed.GPUSeconds == nil || passed.UnknownSeconds > 0 {
		return 0, false
	}
	return max(0, *passed.GPUSeconds), true
}

// addCounts adds what prologs have counted.
func addCounts(cfg config.Config, node *metrics.Node) {
	boot, err := inventory.BootID()
	if err != nil {
		return
	}
	counts, err := tally.Read(cfg.Run(), boot)
	node.Sources[fromCounts] = err == nil
	node.Refusals = make(map[string]uint64)
	for _, reason := range tally.Reasons { // those that never came are 0, so that the first one is seen to rise
		node.Refusals[reason] = counts.Refusals[reason]
	}
	node.Prologs = metrics.Histogram{Count: counts.Prologs, Seconds: counts.Seconds}
	for i, most := range tally.Bounds {
		node.Prologs.Buckets = append(node.Prologs.Buckets, metrics.Bucket{Seconds: most, Count: counts.Within[i]})
	}
}

// addRecords adds the usage records that wait.
func addRecords(cfg config.Config, node *metrics.Node) {
	records, bad, err := usage.List(cfg.Spool())
	node.Sources[fromRecords] = err == nil
	node.Records.Waiting = len(records) + len(bad)
	if len(records) > 0 {
		node.Records.OldestSeconds = trusted.Age(records[0].End).Seconds()
	}
}

func bytesOf(mib int64) uint64 { return uint64(max(mib, 0)) << 20 }

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package sample looks at what the slices of this node use, and keeps it in the timelines of their jobs: memory by the ledgers, GPU time
// by vgpud's count.
package sample

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Sampler looks once.
type Sampler struct {
	Run  rundir.Dir
	Held []state.Slice // all that are granted
	// Counting says that vgpud runs: what it counts is all there was.
	Counting bool
	Now      time.Time
	// IdleAfter is when a slice without GPU time is idle; 0: never.
	IdleAfter time.Duration
}

// Result is what a look has seen.
type Result struct {
	Jobs, Slices int // looked at
	Idle         []Idle
}

// Idle is a slice that has had no GPU time for a while.
type Idle struct {
	Job    uint32
	UID    uint32
	Device device.UUID
	Index  device.NVMLIndex
	For    time.Duration
	New    bool // it was not idle when it was last looked at
	Alone  bool // so are all other slices of its job on this node
}

// job is one at whose slices somebody looks.
type job struct {
	grant  grant.Grant
	file   *timeline.File
	before []timeline.Sample // zero where nobody has looked before
	looked bool
	used   []ledger.DeviceUsage // nil: its ledger cannot be believed
	counts []ledger.TimeDevice  // by vgpud
	since  time.Duration        // the last look
}

// Look looks once, and writes down what it has seen. It goes on where it can; problem is why part of it is not known.
func (s Sampler) Look() (result Result, problem error) {
	seen := make(map[uint32]bool)
	for _, slice := range s.Held {
		if seen[slice.Job] {
			continue
		}
		seen[slice.Job] = true
		g, err := grant.Read(s.Run.Grant(slice.Job))
		if err != nil || g.Restart != slice.Restart || g.Whole || g.Refusal != "" { // it comes, or goes
			continue
		}
		j, err := s.jobOf(g)
		problem = errors.Join(problem, err)
		if j == nil {
			continue
		}
		look := s.lookAt(j)
		if err := j.file.Add(look); errors.Is(err, fs.ErrNotExist) { // its folder is gone, and so is the job
			continue
		} else if err != nil {
			problem = errors.Join(problem, err)
			continue
		}
		result.Jobs++
		result.Slices += len(look.Slices)
		result.Idle = append(result.Idle, s.idle(j, look)...)
	}
	return result, problem
}

// jobOf reads what there is of a job; nil: it has no timeline that could go on.
func (s Sampler) jobOf(g grant.Grant) (*job, error) {
	j := &job{grant: g, before: make([]timeline.Sample, len(g.Slices)), since: s.Now.Sub(g.Since)}
	file, err := timeline.Open(s.Run.Timeline(g.Job), usage.TimelineRun(g), g.UID)
	if err != nil {
		return nil, err
	}
	j.file = file
	if look, ok := file.Last(); ok {
		j.before, j.looked, j.since = look.Slices, true, s.Now.Sub(time.Unix(look.AtUnixS, 0))
	}
	if used, err := ledger.ReadDevices(s.Run.Ledger(g.Job), g.Job, g.Bounds()); err == nil && len(used) == len(g.Slices) {
		j.used = used
	}
	j.counts, err = usage.Counts(s.Run, g, j.used)
	return j, err
}

// isSeen says that vgpud sees all that the job has on a GPU. Who has memory there has a process there, which is not idle to vgpud.
func (j *job) isSeen(slice int) bool {
	c := j.counts[slice]
	return c.LookedNs != 0 && c.Flags&ledger.TimeUnnamed == 0 && (c.Flags&ledger.TimeIdle == 0 || j.used != nil && j.used[slice].UsedBytes == 0)
}

// lookAt is what is known of a job by now.
func (s Sampler) lookAt(j *job) timeline.Look {
	look := timeline.Look{AtUnixS: s.Now.Unix()}
	for i := range j.grant.Slices {
		before, now := j.before[i], usage.Sample(j.counts[i])
		now.UsedMiB, now.LongestIdleS = before.UsedMiB, before.LongestIdleS
		if j.used != nil {
			now.UsedMiB = usage.MiB(j.used[i].UsedBytes)
		}
		if s.Counting && j.looked && j.isSeen(i) && now.UnknownMs == before.UnknownMs && before.BusyMs != nil && *now.BusyMs == *before.BusyMs {
			now.IdleS = before.IdleS + int64(j.since/time.Second)
			now.LongestIdleS = max(now.LongestIdleS, now.IdleS)
		}
		look.Slices = append(look.Slices, now)
	}
	return look
}

// idle are the slices of a job that are idle by now.
func (s Sampler) idle(j *job, look timeline.Look) (found []Idle) {
	if s.IdleAfter == 0 {
		return nil
	}
	for i, slice := range j.grant.Slices {
		for_, before := time.Duration(look.Slices[i].IdleS)*time.Second, time.Duration(j.before[i].IdleS)*time.Second
		if for_ >= s.IdleAfter {
			found = append(found, Idle{Job: j.grant.Job, UID: j.grant.UID, Device: slice.Device, Index: slice.Index, For: for_, New: before < s.IdleAfter})
		}
	}
	for i := range found {
		found[i].Alone = len(found) == len(j.grant.Slices)
	}
	return found
}

// String is what `vgpuctl sample` prints.
func (r Result) String() string {
	return fmt.Sprintf("looked at %d slices of %d jobs", r.Slices, r.Jobs)
}

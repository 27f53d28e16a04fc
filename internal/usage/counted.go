// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"io/fs"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// Counts is what vgpud has counted of each slice of a job, no time longer than the job's, and what it has not while it is away; zero of a slice
// that it has not looked at, and of all where there is no page that this release understands. used is what the job's ledger says; nil: not known.
func Counts(dir rundir.Dir, g grant.Grant, used []ledger.DeviceUsage) ([]ledger.TimeDevice, error) {
	counted := make([]ledger.TimeDevice, len(g.Slices))
	page, err := ledger.ReadTime(dir.Time(g.Job), g.Job)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ledger.ErrLayout) {
		return counted, nil
	}
	wall := uint64(max(time.Since(g.Since), 0))
	for i := range min(len(page), len(counted)) {
		counted[i] = page[i]
		counted[i].BusyNs = min(page[i].BusyNs, wall)
		unknown := min(page[i].UnknownNs, wall) + uint64(unlooked(dir, g, page[i], i < len(used) && used[i].UsedBytes > 0))
		counted[i].UnknownNs = min(unknown, wall)
	}
	return counted, err
}

// surelyAway is for how long no vgpud that runs leaves a slice that has work without a look.
const surelyAway = 10 * time.Second

// unlooked is for how long by now nobody has counted a slice, as vgpud is away: what vgpud itself calls unknown when it is back.
func unlooked(dir rundir.Dir, g grant.Grant, page ledger.TimeDevice, hasMemory bool) time.Duration {
	now := ledger.TimeNow()
	since := time.Duration(page.LookedNs)
	if page.LookedNs == 0 { // it was not there when the slice was granted
		since = now - time.Since(g.Since)
	}
	idle := page.Flags&ledger.TimeIdle != 0 // nothing was there to be counted at the last look
	if now <= since || !isAway(dir, now-since, idle) {
		return 0
	}
	if idle {
		if !hasMemory {
			return 0
		}
		since = max(since, firstProgram(dir, g.Job, now))
	}
	return max(0, now-since)
}

// isAway says that vgpud does not run, or does not look at a slice that has work.
func isAway(dir rundir.Dir, unlooked time.Duration, idle bool) bool {
	runs, err := trusted.IsLocked(dir.VgpudLock())
	if err == nil && (!runs || idle) {
		return !runs
	}
	return unlooked >= surelyAway // whether it runs is root's alone to see
}

// firstProgram is when the first of the programs began that have something to compute with, by their own word; now: there is none.
func firstProgram(dir rundir.Dir, job uint32, now time.Duration) time.Duration {
	programs, err := ledger.ReadGroups(dir.Groups(job), job)
	if err != nil {
		return now
	}
	first := now
	for _, p := range programs {
		if len(p.Groups) > 0 {
			first = min(first, time.Duration(min(p.StartTicks, 1<<40))*ledger.Tick)
		}
	}
	return first
}

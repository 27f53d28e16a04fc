// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// narrowedByGRES says that a step was given less than all of its job's GRES. given is nil when that is
// not known: then the step has what its job has, which is no more than Slurm has counted.
func (g Grant) narrowedByGRES(given *request.Entitlement) bool {
	return given != nil && *given != g.Entitlement && g.Refusal == ""
}

// withinGRES returns what a step asks for that has options and was given these GRES: the smaller of the
// two. Where it was given fewer slices than its options admit, it gets those that the fewest other
// steps use. An error is one line for the user.
func (g Grant) withinGRES(own request.Request, given request.Entitlement, users map[device.UUID]int) (request.Request, error) {
	mem, sm := given.PerSlice()
	jobMem, jobSM := g.Entitlement.PerSlice()
	var mine []device.Slice
	for i, s := range g.Slices {
		step := g.clampSlice(i, s, own)
		if !step.Mine {
			continue
		}
		mine = append(mine, s)
		switch {
		case mem > s.MemMiB && mem > jobMem:
			return own, fmt.Errorf("--gres=gpumem:%d: %d MiB for each of %d slices are more than the job's slice of %d MiB",
				given.MemMiB, mem, given.SliceCount(), s.MemMiB)
		case mem > 0 && own.Mem.OfGPU(step.GPUMiB) > mem:
			return own, fmt.Errorf("--vgpu-mem=%s is more than --gres=gpumem:%d gives each of %d slices", own.Mem, given.MemMiB, given.SliceCount())
		case sm > jobSM && jobSM > 0:
			return own, fmt.Errorf("--gres=gpucores:%d: %d percent for each of %d slices are more than the job's share of %d percent",
				given.SMPercent, sm, given.SliceCount(), jobSM)
		case sm > 0 && own.SMPercent > sm:
			return own, fmt.Errorf("--vgpu-cores=%d is more than --gres=gpucores:%d gives each of %d slices", own.SMPercent, given.SMPercent, given.SliceCount())
		}
	}
	if own.Mem.IsZero() && mem > 0 && mem < jobMem {
		own.Mem = request.Mem{MiB: mem}
	}
	if own.SMPercent == 0 && sm > 0 && sm != jobSM {
		own.SMPercent = sm
	}
	if n := given.SliceCount(); n < len(mine) {
		slices.SortStableFunc(mine, func(a, b device.Slice) int { return users[a.Device] - users[b.Device] })
		own.UUID = g.filterFor(mine[:n])
	}
	return own, nil
}

// filterFor admits these slices of the job and no other; in the shorter of two ways, since a filter is
// bounded.
func (g Grant) filterFor(admitted []device.Slice) request.Filter {
	var f request.Filter
	if len(admitted) > 0 && 2*len(admitted) <= len(g.Slices) {
		for _, s := range admitted {
			f.Only = append(f.Only, string(s.Device))
		}
		return f
	}
	for _, s := range g.Slices {
		if !slices.Contains(admitted, s) {
			f.Not = append(f.Not, string(s.Device))
		}
	}
	return f
}

// usersOfSlices counts the other steps that run on each slice of the job.
func (g Grant) usersOfSlices(dir rundir.Dir, stepName string) map[device.UUID]int {
	users := map[device.UUID]int{}
	folder := filepath.Dir(dir.Step(g.Job, stepName))
	entries, _ := os.ReadDir(folder) // the job's first step finds none
	for _, entry := range entries {
		if entry.Name() == stepName || strings.HasPrefix(entry.Name(), endedMark) {
			continue
		}
		limits, err := ledger.ReadLimits(filepath.Join(folder, entry.Name(), ledger.LimitsFile))
		if err != nil {
			continue // it ends just now
		}
		for _, d := range limits.Devices {
			if d.StepMemBytes > 0 {
				users[d.UUID]++
			}
		}
	}
	return users
}

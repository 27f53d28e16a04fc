// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"fmt"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// Step finds how the step of a process is frozen, or all steps of its job. They have to be that job's, by Slurm's word.
func (h *Here) Step(p Process, all bool) (Frozen, error) {
	current, err := h.Store.Read()
	if err != nil {
		return Frozen{}, err
	}
	if all {
		return h.steps(current.Slices, p)
	}
	owners, err := h.Auditor.Owners(current.Slices, []int{p.PID})
	if err != nil {
		return Frozen{}, err
	}
	if start, ok := h.Auditor.StartOf(p.PID); owners[p.PID] != p.Job || !ok || start != p.StartTicks {
		return Frozen{}, fmt.Errorf("process %d is not of job %d any more", p.PID, p.Job)
	}
	found := Frozen{Job: p.Job}
	if step, ok := h.Auditor.StepOf(current.Slices, p.Job, p.PID); ok {
		found.Step = step.Name
		if found.Files = mountedCgroups().frozenBy(step, h.Auditor.IsStepd, p.PID); len(found.Files) > 0 {
			return found, nil
		}
	}
	if found.Processes = h.Auditor.Below(p.PID, p.UID); len(found.Processes) == 0 {
		return Frozen{}, fmt.Errorf("process %d has ended", p.PID)
	}
	return found, nil
}

// steps are those of a process's job with all processes that are its, wherever they have gone.
func (h *Here) steps(granted []state.Slice, p Process) (Frozen, error) {
	pids := h.Auditor.OfUsers(p.UID)
	owners, err := h.Auditor.Owners(granted, pids)
	if err != nil {
		return Frozen{}, err
	}
	found, mounted := Frozen{Job: p.Job, Step: "all"}, mountedCgroups()
	var covered []int
	for _, pid := range pids {
		if owners[pid] != p.Job || slices.Contains(covered, pid) || h.Auditor.IsStepd(pid) { // Slurm ends its own
			continue
		}
		if step, ok := h.Auditor.StepOf(granted, p.Job, pid); ok {
			files := mounted.frozenBy(step, h.Auditor.IsStepd, pid)
			found.Files = append(found.Files, files...)
			if covered = append(covered, Frozen{Files: files}.members()...); len(files) > 0 {
				continue
			}
		}
		if start, ok := h.Auditor.StartOf(pid); ok {
			found.Processes = append(found.Processes, audit.Process{PID: pid, StartTicks: start})
		}
	}
	return found, nil
}

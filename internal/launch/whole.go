// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// OwnDevice is a GPU's device file for steps that hold it, and the node's, over which it is mounted.
type OwnDevice struct{ File, Node string }

func nodesOf(held grant.Grant, minors []device.Minor) (paths []string) {
	for _, minor := range minors {
		paths = append(paths, filepath.Join(held.DeviceDir, fileOf(minor)))
	}
	return paths
}

func ownDevices(held grant.Grant, minors []device.Minor) (own []OwnDevice) {
	if held.StepDevices == "" {
		return nil
	}
	for _, minor := range minors {
		own = append(own, OwnDevice{File: filepath.Join(held.StepDevices, fileOf(minor)), Node: filepath.Join(held.DeviceDir, fileOf(minor))})
	}
	return own
}

func fileOf(minor device.Minor) string { return "nvidia" + strconv.Itoa(int(minor)) }

// wholePlan is that of a step whose job holds whole GPUs, or none: others are masked, and nothing is limited.
func wholePlan(s Step, held grant.Grant) (Plan, error) {
	if typed := s.Options.First(); typed != "" && !s.WholeJob && len(held.Slices) > 0 {
		return Plan{}, fmt.Errorf("%s: the job holds whole GPUs, of which a step has all or none: ask for slices in a job of its own, "+
			"as in --gres=vgpu:1", typed)
	}
	var given []int
	if s.GPUs != "" {
		var err error
		if given, err = request.ParseNumbers(s.GPUs); err != nil {
			return Plan{}, fmt.Errorf("the GPUs that Slurm gave to the step: %w", err)
		}
	}
	prepared, gpus, err := grant.PrepareWhole(s.RunDir, held, rundir.StepName(s.Step), given, s.AllGPUs)
	if err != nil {
		return Plan{}, err
	}
	p := Plan{Ours: true, Env: prepared.Env, StepDir: prepared.Dir, AllPages: s.RunDir.AllPages()}
	if !s.AllGPUs { // else no task is bound to some of them
		p.Whole = gpus
	}
	if held.IsStrict() {
		p.DenyUserNamespaces = held.DenyUserNamespaces
		p.Strict, p.Mask, p.Own = true, nodesOf(held, prepared.MaskMinors), ownDevices(held, prepared.OwnMinors)
		p.Foreign = len(held.MaskMinors) // PrepareWhole has these first
	}
	return p, nil
}

// bound is how a step's tasks see its slices: as it asks, or its job.
func bound(held grant.Grant, asked request.Request) request.Bind {
	if asked.Bind != request.BindDefault {
		return asked.Bind
	}
	job, _ := request.Decode(held.Request) // what cannot be read asked for nothing
	return job.Bind
}

func seenByTasks(step grant.Step) (seen []grant.WholeGPU) {
	for i, visible := range step.Visible {
		seen = append(seen, grant.WholeGPU{Own: int(step.OwnMinors[i]), Visible: visible})
	}
	return seen
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"errors"
	"fmt"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// ErrRefused is wrapped when Narrow is asked of a job that holds nothing.
var ErrRefused = errors.New("the job holds no slice")

// StepSlice is one slice of the job as a step may use it.
type StepSlice struct {
	device.Slice
	Mine       bool  // false: the step does not use this one
	StepMemMiB int64 // the step's limit; at most the slice's MemMiB
	StepSM     int   // the step's SM percent; 0: no cap
	GPUMiB     int64 // the whole GPU; 0 when the grant does not say

	StepPriority device.Priority // the slice's, or a lower one
}

// Narrow returns the job's slices, in order and all of them, as a step that asks for req may use
// them. The step may take less than the job has; more is an error, one line for the user without
// the "vgpu: " prefix. A step that repeats the job's own request, as srun inside sbatch does by
// inheritance, narrows nothing.
func (g Grant) Narrow(req request.Request) ([]StepSlice, request.Policy, error) {
	if g.Refusal != "" {
		return nil, "", fmt.Errorf("%w: %s", ErrRefused, g.Refusal)
	}
	req = g.own(req)
	policy := g.policy(req)
	if policy == request.PolicyElastic && g.Policy != request.PolicyElastic {
		return nil, "", errors.New("--vgpu-policy=elastic is more than the job's policy, which is cap")
	}
	slices := make([]StepSlice, len(g.Slices))
	mine := 0
	for i, s := range g.Slices {
		step, err := g.narrowSlice(i, s, req)
		if err != nil {
			return nil, "", err
		}
		if step.Mine {
			mine++
		}
		slices[i] = step
	}
	if mine == 0 {
		return nil, "", g.noneLeft(req)
	}
	return slices, policy, nil
}

// own is what the step asks for beyond what it repeats of the job's request.
func (g Grant) own(req request.Request) request.Request {
	// A job's request that cannot be read was already placed as if nothing had been asked for.
	job, _ := request.Decode(g.Request)
	req = req.Beyond(job)
	req.Bind = request.BindDefault // narrows nothing
	return req
}

// policy is that of a step that asks for so much beyond its job's request.
func (g Grant) policy(own request.Request) request.Policy {
	if own.Policy != request.PolicyDefault {
		return own.Policy
	}
	return g.Policy
}

// clamp is all slices of the job as a step may use them that asks for req; it may be none.
func (g Grant) clamp(req request.Request) []StepSlice {
	slices := make([]StepSlice, len(g.Slices))
	for i, s := range g.Slices {
		slices[i] = g.clampSlice(i, s, req)
	}
	return slices
}

// clampSlice is a slice as a step may use it that asks for req: what it asks for, and no more than
// the job has.
func (g Grant) clampSlice(i int, s device.Slice, req request.Request) StepSlice {
	step := StepSlice{Slice: s, StepMemMiB: s.MemMiB, StepSM: s.SMPercent, StepPriority: s.Priority, GPUMiB: g.gpuMiB(i)}
	step.Mine = req.UUID.AdmitsUUID(string(s.Device)) && (g.gpuType(i) == "" || req.GPU.Admits(g.gpuType(i)))
	if !step.Mine {
		return step
	}
	if asked := req.Mem.OfGPU(step.GPUMiB); asked > 0 {
		step.StepMemMiB = min(asked, s.MemMiB)
	}
	if req.SMPercent > 0 && (s.SMPercent == 0 || req.SMPercent < s.SMPercent) {
		step.StepSM = req.SMPercent
	}
	if req.Priority != request.PriorityDefault {
		step.StepPriority = min(s.Priority, device.PriorityOf(string(req.Priority)))
	}
	return step
}

// narrowSlice is clampSlice, but more than the job has is an error.
func (g Grant) narrowSlice(i int, s device.Slice, req request.Request) (StepSlice, error) {
	step := g.clampSlice(i, s, req)
	if !step.Mine {
		return step, nil
	}
	if !req.Mem.IsZero() {
		asked, spelled := req.Mem.MiB, fmt.Sprintf("--vgpu-mem=%dM", req.Mem.MiB)
		if req.Mem.Percent > 0 {
			if step.GPUMiB == 0 {
				return step, fmt.Errorf("--vgpu-mem=%s: the size of GPU %s is not known here; say it in MiB", req.Mem, s.Device)
			}
			asked = req.Mem.OfGPU(step.GPUMiB)
			spelled = fmt.Sprintf("--vgpu-mem=%s, %d MiB of this GPU,", req.Mem, asked)
		}
		if asked > s.MemMiB {
			return step, fmt.Errorf("%s is more than the job's slice of %d MiB", spelled, s.MemMiB)
		}
	}
	switch {
	case req.Uncapped && s.SMPercent > 0 && s.SMPercent < 100:
		return step, fmt.Errorf("--vgpu-cores=0 (no cap) is more than the job's share of %d percent", s.SMPercent)
	case s.SMPercent > 0 && req.SMPercent > s.SMPercent:
		return step, fmt.Errorf("--vgpu-cores=%d is more than the job's share of %d percent", req.SMPercent, s.SMPercent)
	}
	if req.Priority != request.PriorityDefault && device.PriorityOf(string(req.Priority)) > s.Priority {
		return step, fmt.Errorf("--vgpu-priority=%s is more than the job's priority, which is %s", req.Priority, s.Priority)
	}
	return step, nil
}

func (g Grant) noneLeft(req request.Request) error {
	held := make([]string, len(g.Slices))
	for i, s := range g.Slices {
		held[i] = string(s.Device)
		if t := g.gpuType(i); t != "" {
			held[i] += " (" + t + ")"
		}
	}
	var asked []string
	if !req.UUID.IsZero() {
		asked = append(asked, "--vgpu-uuid="+req.UUID.String())
	}
	if !req.GPU.IsZero() {
		asked = append(asked, "--vgpu-gpu="+req.GPU.String())
	}
	return fmt.Errorf("%s: the job holds no such GPU here; it holds %s", strings.Join(asked, " "), strings.Join(held, ", "))
}

func (g Grant) gpuMiB(i int) int64 {
	if i < len(g.NodeGPUsMiB) {
		return g.NodeGPUsMiB[i]
	}
	return 0
}

func (g Grant) gpuType(i int) string {
	if i < len(g.GPUTypes) {
		return g.GPUTypes[i]
	}
	return ""
}

// maskMinors are the device nodes that a step must not open: the other GPUs of the node, and the
// job's own that the step does not use.
func (g Grant) maskMinors(slices []StepSlice) []device.Minor {
	minors := append([]device.Minor(nil), g.MaskMinors...)
	for _, s := range slices {
		if !s.Mine {
			minors = append(minors, s.Minor)
		}
	}
	return minors
}

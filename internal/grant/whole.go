// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// WholeGPU is a GPU that a step has to itself.
type WholeGPU struct {
	Slurm   int    // Slurm's number of it, which a task is told that is bound to a GPU
	Own     int    // the N of /dev/nvidiaN
	Visible string // in CUDA_VISIBLE_DEVICES
}

// Number pairs the job's GPUs with Slurm's numbers for them. Slurm picks GPUs without knowing of slices; where its choice was
// free it was followed, and the numbers are the same.
func (g Grant) Number(slurm []int) []int {
	if len(slurm) != len(g.Slices) {
		return nil
	}
	numbers := make([]int, len(g.Slices))
	var rest []int
	for _, n := range slurm {
		if !slices.ContainsFunc(g.Slices, func(s device.Slice) bool { return int(s.Minor) == n }) {
			rest = append(rest, n)
		}
	}
	for i, s := range g.Slices {
		if n := int(s.Minor); slices.Contains(slurm, n) {
			numbers[i] = n
		} else {
			numbers[i], rest = rest[0], rest[1:]
		}
	}
	return numbers
}

// PrepareWhole makes the folder of a step whose job holds whole GPUs, or none. Nothing is loaded into its tasks. given are
// the numbers of the GPUs that Slurm gave to the step; all says that it has all of its job's.
func PrepareWhole(dir rundir.Dir, g Grant, stepName string, given []int, all bool) (Step, []WholeGPU, error) {
	if !ValidStepName(stepName) {
		return Step{}, nil, fmt.Errorf("prepare step %q: not the name of a step", stepName)
	}
	if !all && len(given) > 0 && len(g.Numbers) != len(g.Slices) {
		return Step{}, nil, errors.New("it is not known which GPUs Slurm gave to the job")
	}
	step := Step{Dir: dir.Step(g.Job, stepName), MaskMinors: slices.Clone(g.MaskMinors)}
	var gpus []WholeGPU
	for i, s := range g.Slices {
		number := int(s.Minor)
		if i < len(g.Numbers) {
			number = g.Numbers[i]
		}
		if !all && !slices.Contains(given, number) {
			step.MaskMinors = append(step.MaskMinors, s.Minor)
			continue
		}
		visible := g.visible(s, len(gpus))
		step.OwnMinors = append(step.OwnMinors, s.Minor)
		gpus = append(gpus, WholeGPU{Slurm: number, Own: int(s.Minor), Visible: visible})
	}
	if err := mkdirAllOpen(step.Dir, dir.Job(g.Job)); err != nil {
		return Step{}, nil, fmt.Errorf("prepare step %d.%s: %w", g.Job, stepName, err)
	}
	if len(g.Slices) == 0 {
		return step, nil, nil
	}
	var visible, numbers []string
	for _, gpu := range gpus {
		visible, numbers = append(visible, gpu.Visible), append(numbers, strconv.Itoa(gpu.Own))
	}
	name := "SLURM_STEP_GPUS"
	if stepName == "batch" || stepName == "interactive" {
		name = "SLURM_JOB_GPUS"
	}
	step.Env = []EnvVar{{"VGPU_STEP_DIR", step.Dir}}
	if len(gpus) > 0 {
		step.Env = append(step.Env, EnvVar{"CUDA_VISIBLE_DEVICES", strings.Join(visible, ",")}, EnvVar{name, strings.Join(numbers, ",")})
	}
	return step, gpus, nil
}

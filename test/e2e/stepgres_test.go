// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// retried is what srun says while the step before is still ending.
var retried = regexp.MustCompile(`(?m)^srun: (Job \d+ step creation temporarily disabled|Step created for (job|StepId)).*\n`)

// A step has the GRES that Slurm gave it, not all of its job's.
func TestStepsHaveTheirGRES(t *testing.T) {
	begin(t)
	type step struct{ options, want string } // the slices that it sees, or a part of what is said
	const noGPU = "No devices were found"
	for job, steps := range map[string][]step{
		"vgpu:1,gpumem:4000,gpucores:40": {
			{"", "4000"},
			{"--gres=vgpu:1,gpumem:1000", "1000"},
			{"--gres=gpumem:1000", "1000"},
			{"--exact --gres=vgpu:1,gpumem:1000", "1000"},
			{"--gres=vgpu:1", "4000"},
			{"--gres=vgpu:1,gpucores:10", "4000"},
			{"--gres=vgpu:1,gpucores:10 --vgpu-cores=20", "vgpu: --vgpu-cores=20 is more than --gres=gpucores:10 gives each of 1 slices"},
			{"--gres=none", noGPU},
			{"--gres=vgpu:0", noGPU},
			{"--gres=vgpu:0,gpumem:0", noGPU},
			{"--gres=vgpu:0,gpumem:1000", "vgpu: --gres=vgpu:0: that is no slice: ask for one or more, as in vgpu:1, or leave it out"},
			{"--gres=gpumem:1000 --vgpu-mem=600", "600"},
			{"--gres=gpumem:1000 --vgpu-mem=2000", "vgpu: --vgpu-mem=2000 is more than --gres=gpumem:1000 gives each of 1 slices"},
		},
		"vgpu:2,gpumem:8000": {
			{"", "4000\n4000"},
			{"--gres=vgpu:1", "4000"},
			{"--export=ALL,VGPU_MEM=10% --gres=vgpu:1,gpumem:3000", "3000"},
			{"--gres=vgpu:2,gpumem:2000", "1000\n1000"},
			{"--gres=vgpu:1,gpumem:6000", "vgpu: --gres=gpumem:6000: 6000 MiB for each of 1 slices are more than the job's slice of 4000 MiB"},
			{"--gres=none", noGPU},
		},
	} {
		script := ""
		for i, step := range steps {
			script += fmt.Sprintf("echo '[%d]'; srun -n1 %s %s; echo '[end]'\n", i, step.options, seen)
		}
		script += "srun -n1 --gres=none vgpu-fill --upto 100; echo '[none]'; srun -n1 --gres=gpumem:1000 vgpu-fill"
		out := batch(t, one, "-n2 --gres="+job, script)
		for i, step := range steps {
			_, said, _ := strings.Cut(out, fmt.Sprintf("[%d]\n", i))
			said, _, _ = strings.Cut(said, "[end]\n")
			said = retried.ReplaceAllString(said, "")
			if digits := strings.Trim(step.want, "0123456789\n") == ""; digits && strings.TrimSpace(said) != step.want || !strings.Contains(said, step.want) {
				t.Errorf("a step with %q in a job of %s: want %q:\n%s", step.options, job, step.want, said)
			}
		}
		out = out[strings.LastIndex(out, "[end]"):]
		none, some, _ := strings.Cut(out, "[none]")
		if !strings.Contains(none, "CUDA_ERROR_NO_DEVICE") {
			t.Errorf("CUDA in a step without GRES:\n%s", none)
		}
		wantLimit(t, some, 1000)
	}
}

// Steps that run at the same time have what each was given, and different GPUs where each has one of
// the job's two.
func TestParallelStepsShareTheirJobByGRES(t *testing.T) {
	begin(t)
	out := batch(t, one, "-n4 --gres=vgpu:1,gpumem:4000", `
		for i in 1 2; do srun -n1 --exact --gres=gpumem:1000 vgpu-fill --hold-until end > fill.$i 2>&1 & done
		until [ "$(cat fill.? 2>/dev/null | grep -c OUT_OF_MEMORY)" = 2 ]; do sleep 0.1; done
		touch end; wait; cat fill.?; rm end fill.?`)
	if strings.Count(out, "CUDA_ERROR_OUT_OF_MEMORY") != 2 {
		t.Errorf("two steps of 1000 MiB at once:\n%s", out)
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "OUT_OF_MEMORY") {
			wantLimit(t, line, 1000)
		}
	}
	out = batch(t, one, "-n4 --gres=vgpu:2,gpumem:8000", `
		for i in 1 2; do srun -n1 --exact --gres=vgpu:1,gpumem:1000 sh -c 'nvidia-smi --query-gpu=uuid --format=csv,noheader; until [ -e end ]; do sleep 0.1; done' > gpu.$i & done
		until [ "$(cat gpu.? 2>/dev/null | wc -l)" = 2 ]; do sleep 0.1; done
		touch end; wait; cat gpu.?; rm end gpu.?`)
	if gpus := strings.Fields(out); len(gpus) != 2 || gpus[0] == gpus[1] || !strings.HasPrefix(gpus[0], "GPU-") {
		t.Errorf("two steps of one slice each are on %v", gpus)
	}
}

// The components of a step that lie in one job have their own GRES as well.
func TestComponentsOfAStepHaveTheirGRES(t *testing.T) {
	begin(t)
	out := ok(t, one, "salloc --quiet -p all -N2 --gres=vgpu:1,gpumem:4000 bash -c 'srun -l --gres=gpumem:500 "+seen+" : --gres=gpumem:600 "+seen+"; srun "+seen+"'").Stdout
	wantSeen(t, "a step of two components", out, "0: 500", "1: 600")
	if strings.Count(out, "4000") != 2 {
		t.Errorf("a step of both nodes: %s", out)
	}
}

// stepAsked is a step with these options, and what it sees: so many MiB of each slice, or a message with these words.
type stepAsked struct{ options, want string }

// scriptOf runs one after the other.
func scriptOf(srun string, steps []stepAsked) (script string) {
	for i, s := range steps {
		script += fmt.Sprintf("echo '[%d]'; %s %s %s; echo '[end]'\n", i, srun, s.options, seen)
	}
	return script
}

// wantEachSees compares what a job with that script wrote.
func wantEachSees(t *testing.T, out string, steps []stepAsked) {
	t.Helper()
	for i, s := range steps {
		_, said, _ := strings.Cut(out, fmt.Sprintf("[%d]\n", i))
		said, _, _ = strings.Cut(said, "[end]\n")
		if digits := strings.Trim(s.want, "0123456789\n") == ""; digits && strings.TrimSpace(said) != s.want || !strings.Contains(said, s.want) {
			t.Errorf("a step with %q: want %q:\n%s", s.options, s.want, said)
		}
	}
}

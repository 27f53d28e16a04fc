// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// A launcher of an MPI is a step that consumes nothing and has all that its job has: of slices as of Slurm's own GPUs. No other
// step becomes one by what its user writes.
func TestAnExternalLauncherHasItsJobsSlices(t *testing.T) {
	if run(t, root, "srun --external-launcher --version").Code != 0 { // its --help does not tell
		t.Skipf("%s: srun has no --external-launcher before 24.05", strings.TrimSpace(run(t, root, "slurmctld -V").Stdout))
	}
	begin(t)
	steps := []stepAsked{
		{"--external-launcher", "4000\n4000"},
		{"--external-launcher --gres=none", "4000\n4000"}, // Slurm leaves --gres out
		{"--external-launcher --vgpu-mem=1000", "1000\n1000"},
		{"--external-launcher --vgpu-bind=task", "4000\n4000"}, // what it starts are no tasks of Slurm's
		{"--gres=none", "No devices were found"},
		{"--gres=vgpu:1", "4000"},
		{"--gres=none --export=ALL,SLURM_EXTERNAL_LAUNCHER=1", "No devices were found"},
	}
	script := scriptOf("srun -n1", steps)
	// Launcher and step together hold no more than the job has.
	script += `
		srun --external-launcher vgpu-fill --upto 2000 --hold-until end > held 2>&1 &
		until grep -qs asked held; do sleep 0.1; done
		srun -n1 --overlap vgpu-fill; touch end; wait; rm end held`
	out := batch(t, one, "-n2 --gres=vgpu:2,gpumem:8000", script)
	wantEachSees(t, out, steps)
	if got := took(t, out[strings.LastIndex(out, "[end]"):]); got > 1500 || got == 0 {
		t.Errorf("beside a launcher with 2000 MiB of 4000 a step took %d MiB", got)
	}
	if !c.Shards {
		return
	}
	// Plain GPUs of Slurm's, and slices where Slurm picks the GPU.
	for options, want := range map[string]string{"-p whole --gres=gpu:2": "2", "-p shard --gres=vgpu:1,gpumem:4000": "1"} {
		got := strings.TrimSpace(ok(t, one, "salloc --quiet -n1 "+options+" srun --external-launcher sh -c 'nvidia-smi -L | wc -l'").Stdout)
		if got != want {
			t.Errorf("a launcher in a job with %s sees %q GPUs, not %s", options, got, want)
		}
	}
}

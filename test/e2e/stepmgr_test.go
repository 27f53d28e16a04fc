// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"
)

// Where a job's steps are kept by slurmstepd on its first node, and not by slurmctld, the plugin is told there what Slurm gave to a
// step, on whichever node it runs.
func TestStepsThatSlurmstepdKeeps(t *testing.T) {
	if run(t, root, "sbatch --stepmgr --version").Code != 0 {
		t.Skipf("%s: sbatch has no --stepmgr before 24.05", strings.TrimSpace(run(t, root, "slurmctld -V").Stdout))
	}
	begin(t)
	t.Run("of a job that asks for it", func(t *testing.T) { keptSteps(t, "--stepmgr") })
	reconfigured(t, "SlurmctldParameters=enable_stepmgr\n")
	t.Run("of every job", func(t *testing.T) { keptSteps(t, "") })
	t.Run("of an srun that allocates", func(t *testing.T) {
		if out := ok(t, one, "srun --quiet --gres=vgpu:1 --vgpu-mem=2000 "+seen).Stdout; out != "2000\n" {
			t.Errorf("it sees %s", out)
		}
	})
	t.Run("that nobody waits for", asyncSteps)
}

func keptSteps(t *testing.T, option string) {
	steps := []stepAsked{
		{"-N2 -n2", "4000\n4000"},
		{"-N2 -n2 --gres=gpumem:1000", "1000\n1000"},
		{"-N1 -n1 -w n1 --gres=gpumem:900", "900"},
		{"-N1 -n1 -w n2 --gres=gpumem:800", "800"},
		{"-N1 -n1 -w n2 --exact --gres=vgpu:1,gpumem:700", "700"},
		{"-N2 -n2 --vgpu-mem=600", "600\n600"},
		{"-N1 -n1 -w n2 --gres=gpumem:1000 --vgpu-mem=2000", "--vgpu-mem=2000 is more than --gres=gpumem:1000 gives"},
		{"-N1 -n1 -w n1 --gres=none", "No devices were found"},
		{"-N1 -n1 -w n2 --gres=none", "No devices were found"},
		{"-N1 -n1 --external-launcher", "4000"},
	}
	script := "echo \"kept by [$SLURM_STEPMGR]\"\n" + scriptOf("srun", steps)
	out := batch(t, one, "-p all -N2 -n4 --ntasks-per-node=2 --gres=vgpu:1,gpumem:4000 "+option, script)
	if !strings.Contains(out, "kept by [n1]") {
		t.Errorf("its steps are not kept by slurmstepd:\n%s", out)
	}
	wantEachSees(t, out, steps)
}

// asyncSteps wait in the step manager when what they ask for is in use; each has its own.
func asyncSteps(t *testing.T) {
	if run(t, root, "srun --async --version").Code != 0 {
		t.Skipf("%s: srun has no --async before 26.05", strings.TrimSpace(run(t, root, "slurmctld -V").Stdout))
	}
	out := batch(t, one, "-n2 --gres=vgpu:1,gpumem:4000", `
		rm -f async.*
		for mib in 3000 2000 500; do srun --async -n1 --exact --gres=gpumem:$mib -o async.$mib sh -c '`+seen+`; sleep 1'; done
		srun --async -n1 --exact --gres=gpumem:1000 --vgpu-mem=400 -o async.400 `+seen+`
		srun --async -n1 --exact --gres=gpumem:1000 -o async.fill vgpu-fill
		for try in $(seq 600); do [ "$(cat async.3000 async.2000 async.500 async.400 | wc -l)" = 4 ] && grep -q OUT_OF_MEMORY async.fill && break; sleep 0.1; done
		cat async.3000 async.2000 async.500 async.400 async.fill`)
	if !strings.Contains(out, "3000\n2000\n500\n400\n") {
		t.Errorf("four steps see:\n%s", out)
	}
	wantLimit(t, out, 1000)
	job := submit(t, one, "-n1 --gres=vgpu:1,gpumem:4000", "srun --async -o async.kept vgpu-fill --upto 1500; for try in $(seq 600); do grep -q asked async.kept && break; sleep 0.1; done; cat async.kept")
	finish(t, one, job)
	if slices := awaitUsage(t, job, 60*time.Second).VGPU.Nodes["n1"]; len(slices) != 1 || slices[0].PeakMiB < 1500 {
		t.Errorf("the record is %+v", slices)
	}
}

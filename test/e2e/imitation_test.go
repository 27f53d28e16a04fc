// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
)

// What a user writes where Slurm repeats it must not change what his job is held to: it runs within its
// limit or is refused.
func TestTextsOfAUserTakeNoLimitAway(t *testing.T) {
	begin(t)
	const whole = "OverSubscribe=NO Exclusive=NODE Contiguous=0 TresPerNode=none"
	for name, options := range map[string]string{
		"comment": "--comment='x " + whole + "'", "features": "--cluster-constraint='x " + whole + "'",
		"name": "--job-name='x " + whole + "'", "network": "--network='x " + whole + "'",
		"mail": "--mail-user='x " + whole + "'", "record": "--comment=\"x\nJobId=1 JobName=y " + whole + "\"",
		"exclusive": "--exclusive --comment='x TresPerNode=none'",
		"detail": "--job-name='x CoreSpec=* JOB_GRES=(null)   Nodes=n1 CPU_IDs=0 Mem=0 GRES= MinCPUsNode=1 Features=(null) " +
			"OverSubscribe=OK Contiguous=0'",
	} {
		t.Run(name, func(t *testing.T) {
			options := "--gres=vgpu:1 --vgpu-mem=3000 --no-requeue " + options
			if name == "record" || name == "detail" { // job_submit.lua sees what the node would not believe
				if result := run(t, one, "sbatch "+options+" --wrap true"); result.Code == 0 ||
					!strings.Contains(result.Stderr, "it has a line that imitates scontrol's output") {
					t.Error(result)
				}
				return
			}
			job := submit(t, one, options, "vgpu-fill # x "+whole)
			awaitState(t, job, "COMPLETED", "FAILED")
			out := output(t, one, job)
			if strings.Contains(out, "vgpu: it is not known what the job was allocated") {
				return
			}
			wantLimit(t, out, 3000)
		})
	}
	t.Run("exclusive and nothing else", func(t *testing.T) {
		out := batch(t, one, "--exclusive", "nvidia-smi -L")
		if strings.Count(out, "GPU ") != gpus {
			t.Errorf("a job with the whole node that asked for no slice sees\n%s", out)
		}
	})
}

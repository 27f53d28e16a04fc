// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os/exec"
	"strings"
	"testing"
)

// TestPrologsMayRunInTheExternStep: what such a prolog mounts is the node's all the same, where the epilog, vgpud and vgpuctl find it.
func TestPrologsMayRunInTheExternStep(t *testing.T) {
	needStrict(t)
	if said, err := exec.Command("slurmd", "-V").Output(); err != nil || !strings.Contains(string(said), " ") || strings.Fields(string(said))[1] < "24.11" {
		t.Skipf("this Slurm has no RunInJob: %s, %v", said, err)
	}
	begin(t)
	reconfigured(t, "PrologFlags=Alloc,Contain,RunInJob\n")
	ok(t, root, "scontrol show config | grep -q ^PrologFlags.*RunInJob")
	job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000")
	slicesOf(t, job)
	awaitState(t, job, "RUNNING")
	ok(t, root, "ls "+runDir("pages")+"/"+job+"/ledger")
	if out := ok(t, one, "srun --gres=vgpu:1 --vgpu-mem=3000 "+seen); strings.TrimSpace(out.Stdout) != "3000" {
		t.Errorf("a step sees %q", out.Stdout)
	}
	release()
	finish(t, one, job)
	onlyItsOwnPages(t)
	nodeIsUp(t)
}

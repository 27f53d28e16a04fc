// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// ordinary are jobs as people have them. What holds memory does so for longer than the two looks of an audit.
var ordinary = []struct{ options, script string }{
	{"--gres=vgpu:1 --vgpu-mem=3000", "vgpu-fill --upto 1000 --hold 2"},
	{"--gres=vgpu:1 --vgpu-mem=3000", "vgpu-fill --upto 1000 --hold 20 & sleep 1; kill -9 $!; wait; vgpu-fill --upto 1000 --hold 1"},
	{"--gres=vgpu:1 --vgpu-mem=3000", "for i in {1..30}; do vgpu-fill --upto 64; done"},
	{"--gres=vgpu:1 --vgpu-mem=9000", "for i in 1 2 3 4; do vgpu-fill --upto 500 --hold 2 & done; wait"},
	{"-n2 --gres=vgpu:1 --vgpu-mem=6000", "srun -n1 --vgpu-mem=2000 vgpu-fill --upto 500 --hold 1; srun -n2 vgpu-fill --upto 500 --hold 1"},
	{"--gres=vgpu:2 --vgpu-mem=3000", "vgpu-fill --upto 500 --hold 2 --device 0 & vgpu-fill --upto 500 --hold 2 --device 1; wait"},
	{"--gres=vgpu:1 --vgpu-mem=3000", "vgpu-fill --upto 1000 --hold 20 & sleep 1; scancel $SLURM_JOB_ID; wait"},
	{"--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", "vgpu-fill --api async --upto 1000 --hold 2"},
	{"--gres=vgpu:1 --vgpu-mem=3000", "unshare --user --map-root-user --mount vgpu-fill --upto 1000 --hold 2 || true"},
	{"", "sleep 1"},
}

// wantNoStrays looks, again and again and faster than usual, until no job is left.
func wantNoStrays(t *testing.T, node string, jobs int) {
	t.Helper()
	looks := 0
	for ok(t, root, "squeue -h -t PD,R,CG").Stdout != "" {
		looks++
		if result := run(t, root, tool(node, "audit --apart 100ms")); result.Code != 0 || !strings.Contains(result.Stdout, "no stray use") {
			t.Errorf("an alarm: %s", result)
		}
	}
	t.Logf("%d jobs, %d audits", jobs, looks)
	if looks < 5 {
		t.Errorf("only %d audits while %d jobs ran", looks, jobs)
	}
}

func TestOrdinaryJobsAreNoStrays(t *testing.T) {
	begin(t)
	jobs := 0
	for range 2 {
		for _, kind := range ordinary {
			for _, u := range []cluster.User{one, two} {
				submit(t, u, "-o /dev/null "+kind.options, kind.script)
				jobs++
			}
		}
	}
	wantNoStrays(t, "n1", jobs)
}

func TestWholeGPUsAreNoStrays(t *testing.T) {
	needStrict(t)
	begin(t)
	for i, options := range []string{"--gpus=1", "--gres=vgpu:1 --vgpu-mem=3000"} {
		u := []cluster.User{one, two}[i]
		submit(t, u, "-p whole -o /dev/null "+options, "vgpu-fill --upto 1000 --hold 5")
	}
	wantNoStrays(t, "w1", 2)
	// On a GPU that another job has to itself.
	job, _ := holding(t, one, "-p whole --gpus=1")
	whole := holdsOn(t, "w1", job)[0]
	outside(t, two, onGPU(whole))
	var out string
	until(t, "a stray", 30*time.Second, func() error {
		result := run(t, root, tool("w1", "audit --apart 100ms"))
		if out = result.Stdout; result.Code != 3 {
			return fmt.Errorf("%s", result)
		}
		return nil
	})
	if !strings.Contains(out, two.Name) || !strings.Contains(out, "is of no job") || strings.Contains(out, one.Name) {
		t.Errorf("it says %s", out)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// withControl gives the cluster's GPUs a control device for one test.
func withControl(t *testing.T) {
	t.Helper()
	if err := c.StartControl(t.Context()); errors.Is(err, cluster.ErrNoFUSE) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.StopControl(); err != nil {
			t.Error(err)
		}
	})
}

// The simulated control device comes and goes with a test, and jobs run on it meanwhile.
func TestKernelsOfJobsRunOnTheControlDevice(t *testing.T) {
	begin(t)
	look := `srun --gres=vgpu:1 bash -c 'vgpu-busy --us 20000 --for 400 & sleep 0.2; ls -l /proc/$!/fd; wait'`
	on := "control/nvidiactl"
	if out := ok(t, one, look).Stdout; strings.Contains(out, on) {
		t.Errorf("there is no control device, but:\n%s", out)
	}
	t.Run("on it", func(t *testing.T) {
		withControl(t)
		if out := ok(t, one, look).Stdout; !strings.Contains(out, on) || !strings.Contains(out, "busy for") {
			t.Errorf("want a descriptor of the control device:\n%s", out)
		}
		// The library holds it back by words that its stream waits for, behind kernels.
		ok(t, one, "timeout 20 srun --gres=vgpu:1 --vgpu-cores=50 vgpu-busy --us 2000 --for 300")
	})
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil || strings.Contains(string(mounts), nodes()+"/control") {
		t.Errorf("it is still mounted, %v:\n%s", err, mounts)
	}
}

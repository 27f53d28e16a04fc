// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
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

// What a program's libcuda has the driver schedule stands on its job's page, which root reads, while the program runs.
func TestAProgramsChannelGroupsAreWrittenDown(t *testing.T) {
	begin(t)
	withControl(t)
	areWrittenDown(t, "vgpu-busy")
	// By the guard alone, as in a container without the preload, where the C library's ioctl comes before ours.
	t.Run("by its guard", func(t *testing.T) {
		needStrict(t)
		areWrittenDown(t, `unshare --user --map-root-user --mount sh -c 'mount --bind /dev/null /etc/ld.so.preload; unset LD_PRELOAD; exec vgpu-busy "$@"' -`)
	})
}

func areWrittenDown(t *testing.T, busy string) {
	t.Helper()
	folder := openDir(t)
	job := submit(t, one, "--gres=vgpu:1", busy+` --us 2000 --for 60000 & busy=$!
		until [ -e `+folder+`/seen ]; do sleep 0.05; done; kill $busy`)
	number, err := strconv.ParseUint(job, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	path := rundir.Dir(runDir()).Groups(uint32(number))
	var named []ledger.GroupsProcess
	until(t, "a channel group of job "+job, 60*time.Second, func() error {
		if named, err = ledger.ReadGroups(path, uint32(number)); err == nil && (len(named) != 1 || len(named[0].Groups) != 1 || len(named[0].Groups[0].Channels) == 0) {
			err = fmt.Errorf("%d processes: %+v", len(named), named)
		}
		return err
	})
	process, group := named[0], named[0].Groups[0]
	if on, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", process.PID, group.FD)); err != nil || !strings.Contains(on, "control/nvidiactl") {
		t.Errorf("descriptor %d of process %d is of %s, %v", group.FD, process.PID, on, err)
	}
	if group.Subdevice == 0 || group.Engine != 1 || process.More != 0 {
		t.Errorf("it says %+v of %+v", group, process)
	}
	ok(t, root, "touch "+folder+"/seen")
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// cappedAtWork is a job with a cap in which a program is busy until the test ends.
func cappedAtWork(t *testing.T, cores int, how string) (job string) {
	t.Helper()
	return busyUnder(t, "cap", cores, how)
}

// comesTo waits until a job has had this part of the GPU over some seconds, by what vgpud counted: the machine that simulates the GPU may be late.
func comesTo(t *testing.T, job string, percent, within float64) {
	t.Helper()
	const over = 2 * time.Second
	was := counted(t, job)
	until(t, fmt.Sprintf("%.0f %% of the GPU for job %s", percent, job), 30*time.Second, func() error {
		now := counted(t, job)
		gone := time.Duration(now.LookedNs - was.LookedNs)
		if gone < over {
			return fmt.Errorf("%s", gone)
		}
		had := 100 * float64(now.BusyNs-was.BusyNs) / float64(gone)
		if was = now; had < percent-within || had > percent+within {
			return fmt.Errorf("it has %.1f", had)
		}
		return nil
	})
}

// TestVgpudHoldsCaps: alone, changed while it runs, though its worker dies, beside one that is idle and beside one that is busy. Nothing in the program waits.
func TestVgpudHoldsCaps(t *testing.T) {
	needVgpud(t)
	begin(t)
	job := cappedAtWork(t, 30, "--us 2000 --ahead 16")
	comesTo(t, job, 30, 3)
	set := "vgpuctl --config " + c.ConfigPath() + " --node n1 set " + job + " --cores "
	ok(t, root, set+"60")
	comesTo(t, job, 60, 4)
	_, worker := vgpudsToEnd(t)
	if err := unix.Kill(worker, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	comesTo(t, job, 60, 4)
	ok(t, root, set+"0")
	comesTo(t, job, 97, 5)
	ok(t, root, set+"20")
	comesTo(t, job, 20, 3)
	idle := submit(t, two, "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=40 --vgpu-policy=cap", "vgpu-busy --us 100 --rest 1000000 --for 600000")
	t.Cleanup(func() { ok(t, root, "scancel "+idle) })
	awaitGroups(t, idle)
	comesTo(t, job, 20, 3)
	atWork(t, 40, "--us 20000 --ahead 16") // it leaves a fifth of the GPU and more
	comesTo(t, job, 20, 4)
}

// awaitGroups waits for a job's channel groups.
func awaitGroups(t *testing.T, job string) {
	t.Helper()
	id, err := strconv.ParseUint(job, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "a channel group of job "+job, 60*time.Second, func() error {
		named, err := ledger.ReadGroups(rundir.Dir(runDir()).Groups(uint32(id)), uint32(id))
		if err == nil && (len(named) == 0 || len(named[0].Groups) == 0) {
			err = fmt.Errorf("%+v", named)
		}
		return err
	})
}

// restartControl gives the GPUs another control device, by simgpu.conf as it is now, and has n1 begin another vgpud on it.
func restartControl(t *testing.T) {
	t.Helper()
	endVgpud(t)
	if err := errors.Join(c.StopControl(), c.StartControl(context.Background())); err != nil {
		t.Fatal(err)
	}
}

// TestACapIsTheLibrarysWhereTheDriverRefuses: a driver that switches no channels off leaves caps to the library, in a program that runs and in one that begins.
func TestACapIsTheLibrarysWhereTheDriverRefuses(t *testing.T) {
	needVgpud(t)
	begin(t)
	t.Cleanup(func() { restartControl(t); takenBack(t) }) // when simgpu.conf is as it was
	replaced(t, c.Home.Path("sim", "simgpu.d", "simgpu.conf"), func(text string) string { return text + "control=refuse\n" })
	restartControl(t)
	running, line := busyIn(t, one, "running")
	job := submit(t, one, "-n2 --gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=30 --vgpu-policy=cap", line)
	t.Cleanup(func() { run(t, root, "scancel "+job) })
	until(t, "a GPU that is left to the library", 60*time.Second, func() error {
		if text, err := os.ReadFile(rundir.Dir(runDir()).VgpudRefused()); err != nil || !strings.Contains(string(text), "GPU-") {
			return fmt.Errorf("refused: %q, %w", text, err)
		}
		return nil
	})
	running.awaitShare(len(running.seconds())+1, 30)
	if said := run(t, root, "vgpuctl --config "+c.ConfigPath()+" --node n1 doctor"); said.Code == 0 || !strings.Contains(said.Stdout, "does not let it keep caps on GPU-") {
		t.Errorf("doctor says\n%s", said)
	}
	running.end()
	finish(t, one, job)
	later, line := busyIn(t, one, "later")
	job = submit(t, one, "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=30 --vgpu-policy=cap", line)
	later.awaitShare(0, 30)
	later.end()
	finish(t, one, job)
}

// takenBack has a program on each GPU that is left to the library, with which vgpud finds that the driver does what is asked again.
func takenBack(t *testing.T) {
	t.Helper()
	refused := func() []string {
		text, _ := os.ReadFile(rundir.Dir(runDir()).VgpudRefused())
		return strings.Fields(string(text))
	}
	for _, gpu := range refused() {
		if !strings.HasPrefix(gpu, "GPU-") {
			continue
		}
		again, line := busyIn(t, one, "again")
		job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=30 --vgpu-uuid="+gpu, line)
		until(t, "a GPU that is vgpud's again", 60*time.Second, func() error {
			if left := refused(); slices.Contains(left, gpu) {
				return fmt.Errorf("refused: %q", left)
			}
			return nil
		})
		again.end()
		finish(t, one, job)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/wall"
	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// The driver's own limits, by a simulated driver that keeps them for cgroups of this machine's kernel. Slurm's cgroup/v2 does
// not start beside cgroup v1, so a plugin plays it.

// withWall makes n1 a node whose driver holds jobs to their memory, and says where their cgroups are.
func withWall(t *testing.T) (folder string) {
	t.Helper()
	needStrict(t)
	mount, err := wall.Mount()
	if err != nil {
		t.Skip(err)
	}
	top := filepath.Join(mount, "vgpu-e2e-"+strconv.Itoa(os.Getpid()))
	folder = filepath.Join(top, "n1_slurmstepd.scope") // as the audit knows Slurm's
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { removeCgroups(t, top) })
	plugin := c.Home.Path("lib", "cgroup.so")
	ok(t, root, "install -m 755 "+filepath.Join(c.Build, "test-cgroup", "cgroup.so")+" "+plugin)
	replaced(t, c.Home.Path("etc", "plugstack.conf"), func(text string) string { return "required " + plugin + " " + folder + "\n" + text })
	driverKeepsLimits(t)
	c.Isolation = "wall"
	t.Cleanup(func() { writeInventory(t) })
	configured(t, "")
	t.Cleanup(func() { c.Isolation = "strict" }) // before the file is written again
	if result := writeInventory(t); result.Code != 0 {
		t.Fatal(result)
	}
	return folder
}

// replaced changes a file for this test.
func replaced(t *testing.T, path string, change func(string) string) {
	t.Helper()
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.WriteFile(path, before, 0o644); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(path, []byte(change(string(before))), 0o644); err != nil {
		t.Fatal(err)
	}
}

func driverKeepsLimits(t *testing.T) {
	t.Helper()
	replaced(t, c.Home.Path("sim", "simgpu.d", "simgpu.conf"), func(text string) string { return text + "memory_limits=1\n" })
}

func writeInventory(t *testing.T) cluster.Result {
	t.Helper()
	return run(t, root, "vgpu-gres --config "+c.ConfigOf("n1")+" --node n1 inventory --write")
}

// removeCgroups waits for who is still in them.
func removeCgroups(t *testing.T, top string) {
	t.Helper()
	until(t, "cgroups without processes", 30*time.Second, func() error {
		var dirs []string
		_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				dirs = append(dirs, path)
			}
			return nil
		})
		for i := len(dirs) - 1; i >= 0; i-- {
			if err := os.Remove(dirs[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// driver is the node's simulated NVML.
func driver(t *testing.T) discover.Session {
	t.Helper()
	lib, err := discover.Library(c.Home.Path("sim", "libnvidia-ml.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	session, err := discover.Open(lib)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(session.Close)
	return session
}

// wantNoWall waits until nothing is left of a job's limits; or, for processes that outlived it, of its memory.
func wantNoWall(t *testing.T, job, folder string) {
	t.Helper()
	until(t, "the end of the wall of job "+job, 30*time.Second, func() error {
		if _, err := os.Stat(runDir("walls", job+".json")); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("its file is there: %w", err)
		}
		return nil
	})
	if _, err := os.Stat(filepath.Join(folder, "job_"+job)); err != nil {
		return // and so the limits are gone
	}
	limit := uint64(discover.Unlimited)
	if events, _ := os.ReadFile(filepath.Join(folder, "job_"+job, "cgroup.events")); strings.Contains(string(events), "populated 1") {
		limit = 0
	}
	session := driver(t)
	for _, uuid := range uuids(t) {
		if now, err := session.Limit(uuid, filepath.Join(folder, "job_"+job)); err != nil || now.HardBytes != limit {
			t.Errorf("job %s is over, and of %s may have %+v, want %d: %v", job, uuid, now, limit, err)
		}
	}
}

func uuids(t *testing.T) (all []device.UUID) {
	t.Helper()
	for _, uuid := range strings.Fields(ok(t, root, "nvidia-smi --query-gpu=uuid --format=csv,noheader").Stdout) {
		all = append(all, device.UUID(uuid))
	}
	return all
}

// bare is for a program that no library of ours is in: its linker reads no preloads, and its driver stands behind no guard.
func bare() string { return ownDriver + "cp -L " + c.Home.Path("bin", "vgpu-fill") + " vgpu-fill\n" }

func bareFill(options string) string { return bare() + "./ld ./vgpu-fill " + options }

func TestTheDriversWallHoldsWhoIsWithoutTheLibrary(t *testing.T) {
	begin(t)
	folder := withWall(t)
	job := submit(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), "exec 2>&1\n"+bareFill(fmt.Sprintf("--upto %d", openMiB))+"\ntrue")
	if got := verdict(t, finish(t, one, job)); got != limited {
		t.Errorf("a program with a driver of its own: %s, want %s", got, limited)
	}
	wantNoWall(t, job, folder)
	out := batch(t, one, fmt.Sprintf("--gres=vgpu:1 --vgpu-mem=%d", containerMiB), "exec 2>&1\nvgpu-fill\ntrue")
	wantLimit(t, out, containerMiB)
}

// Steps, also those that ask for less, have together what their job has: none gets a limit of its own.
func TestStepsBehindTheDriversWallShareIt(t *testing.T) {
	begin(t)
	withWall(t)
	out := batch(t, one, fmt.Sprintf("-n2 --gres=vgpu:1 --vgpu-mem=%d", containerMiB), bare()+`rm -f go first
srun -n1 --overlap --vgpu-mem=2500 ./ld ./vgpu-fill --upto 1000 --hold-until $PWD/go >first &
until [ -s first ]; do sleep 0.1; done
srun -n1 --overlap --vgpu-mem=2500 ./ld ./vgpu-fill 2>&1; touch go; wait`)
	if got := took(t, out); got > containerMiB-1000 || got < containerMiB-1000-2*contextMiB-64 {
		t.Errorf("beside a step with 1000 of its job's %d MiB another one took %d:\n%s", containerMiB, got, out)
	}
}

// startedJob is one that holds a slice, and has a task that runs.
func startedJob(t *testing.T, options string) (job string, release func()) {
	t.Helper()
	job, release = holding(t, one, options)
	until(t, "the script of job "+job, 60*time.Second, func() error {
		now := state(t, job)
		if now == "FAILED" {
			t.Fatalf("job %s failed: %s", job, output(t, one, job))
		}
		if !strings.Contains(output(t, one, job), "started") {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
	return job, release
}

func TestTheDriversWallGoesWithItsJob(t *testing.T) {
	begin(t)
	folder := withWall(t)
	t.Run("changed", func(t *testing.T) { changedWall(t, folder) })
	t.Run("requeued", func(t *testing.T) {
		job, release := startedJob(t, "--requeue --gres=vgpu:1 --vgpu-mem=2000")
		ok(t, root, "scontrol requeue "+job)
		until(t, "the second run", 90*time.Second, func() error {
			data, err := os.ReadFile(runDir("walls", job+".json"))
			if err == nil && !strings.Contains(string(data), `"restart":1`) {
				err = fmt.Errorf("%s", data)
			}
			return err
		})
		release()
		finish(t, one, job)
		wantNoWall(t, job, folder)
	})
	t.Run("killed", func(t *testing.T) {
		job, _ := startedJob(t, "--no-requeue --gres=vgpu:1 --vgpu-mem=2000")
		killStepd(t, filepath.Join(folder, "job_"+job, "step_batch", "slurm"))
		run(t, root, "scancel "+job)
		wantNoWall(t, job, folder)
		if _, err := os.Stat(filepath.Join(folder, "job_"+job)); err != nil {
			t.Errorf("the folder is gone, so that nothing was taken away from it: %v", err)
		}
		// Nobody else ends what it left.
		if err := os.WriteFile(filepath.Join(folder, "job_"+job, "cgroup.kill"), []byte("1"), 0); err != nil {
			t.Error(err)
		}
	})
}

// changedWall has vgpuctl change what a job has.
func changedWall(t *testing.T, folder string) {
	t.Helper()
	session := driver(t)
	job, release := startedJob(t, "--gres=vgpu:1 --vgpu-mem=3000")
	want := func(uuid string, bytes uint64) {
		t.Helper()
		if now, err := session.Limit(device.UUID(uuid), filepath.Join(folder, "job_"+job)); err != nil || now.HardBytes != bytes {
			t.Errorf("of %s it may have %+v, want %d: %v", uuid, now, bytes, err)
		}
	}
	own, other := slicesOf(t, job)[0].Device, otherGPU(t, job)
	want(own, 3000<<20)
	want(other, 0)
	ok(t, root, tool("n1", "set "+job+" --mem 4000"))
	want(own, 4000<<20)
	want(other, 0)
	release()
	finish(t, one, job)
	wantNoWall(t, job, folder)
}

// killStepd kills the slurmstepd in a cgroup.
func killStepd(t *testing.T, folder string) {
	t.Helper()
	procs, err := os.ReadFile(filepath.Join(folder, "cgroup.procs"))
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for pid := range strings.FieldsSeq(string(procs)) {
		name, _ := os.ReadFile("/proc/" + pid + "/comm")
		if number, err := strconv.Atoi(pid); err == nil && strings.HasPrefix(string(name), "slurmstepd") && syscall.Kill(number, syscall.SIGKILL) == nil {
			killed++
		}
	}
	if killed == 0 {
		t.Fatalf("there is no slurmstepd among %s", procs)
	}
}

// What a job keeps out of its ledger stands in the accounting by the driver's word, if an audit has seen it.
func TestTheDriversFigureIsAccounted(t *testing.T) {
	begin(t)
	withWall(t)
	gate := filepath.Join(openDir(t), "gate")
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000", bareFill("--upto 1500 --hold-until "+gate))
	wantStrays(t, fmt.Sprintf("not-in-ledger %s %s", one.Name, job))
	ok(t, root, tool("n1", "audit --act"))
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	finish(t, one, job)
	u := awaitUsage(t, job, 90*time.Second)
	if peak := u.VGPU.Nodes["n1"][0].PeakMiB; peak < 1500 || peak > 3000 {
		t.Errorf("its peak is %d MiB", peak)
	}
}

// A node that is asked for a wall and has none says so where its administrator looks, and does not do with less.
func TestANodeWithoutAWallRefuses(t *testing.T) {
	needStrict(t)
	begin(t)
	c.Isolation = "wall"
	t.Cleanup(func() { writeInventory(t) })
	configured(t, "")
	t.Cleanup(func() { c.Isolation = "strict" })
	for name, says := range map[string]string{"the inventory": writeInventory(t).String(), "doctor": run(t, root, tool("n1", "doctor")).String()} {
		if !strings.Contains(says, "the driver keeps no limits of memory by cgroup") {
			t.Errorf("%s: %s", name, says)
		}
	}
	job := submit(t, one, "--no-requeue --gres=vgpu:1 --vgpu-mem=3000", "echo it runs")
	awaitState(t, job, "FAILED")
	if out := output(t, one, job); strings.Contains(out, "it runs") || !strings.Contains(out, "the driver keeps no limits of memory by cgroup") {
		t.Errorf("it is not refused:\n%s", out)
	}
}

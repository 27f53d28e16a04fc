// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
)

// cgroups makes a hierarchy with one job, and what /proc would say of a process in a step of it.
func cgroups(t *testing.T, job string) (mount, top string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 2 && fields[2] == "cgroup2" {
			mount = fields[1]
		}
	}
	if mount == "" {
		t.Skip("cgroup v2 is not mounted")
	}
	folder, err := os.MkdirTemp(mount, "vgpu-test-")
	if err == nil {
		err = os.Mkdir(filepath.Join(folder, job), 0o755)
	}
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(os.Remove(filepath.Join(folder, job)), os.Remove(folder)); err != nil {
			t.Error(err)
		}
	})
	return mount, filepath.Base(folder)
}

func procSaying(t *testing.T, cgroup, mounts string) string {
	t.Helper()
	dir := t.TempDir()
	err := errors.Join(os.WriteFile(filepath.Join(dir, "cgroup"), []byte(cgroup), 0o644), os.WriteFile(filepath.Join(dir, "mounts"), []byte(mounts), 0o644))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Slurm's folder of the job is above that of the step, whatever stands below: 22.05 names it by the job, 26.05 by the run.
func TestTheJobsCgroup(t *testing.T) {
	for job, held := range map[string]grant.Grant{"job_7": {Job: 7}, "sCWHM82JE41R00": {Job: 7, SLUID: "sCWHM82JE41R00"}} {
		mount, top := cgroups(t, job)
		proc := procSaying(t, "8:pids:/x\n0::/"+top+"/"+job+"/step_0/slurm\n", "cgroup /sys/fs/cgroup/pids cgroup rw 0 0\ncgroup2 "+mount+" cgroup2 rw 0 0\n")
		if got, err := jobCgroup(proc, held); got != filepath.Join(mount, top, job) || err != nil {
			t.Errorf("%s: %q, %v", job, got, err)
		}
	}
}

// Another job's folder, or none of Slurm's, is not taken for the job's.
func TestNoOtherCgroupIsTheJobs(t *testing.T) {
	mount, top := cgroups(t, "job_7")
	for name, paths := range map[string]string{
		"v1 alone":      "4:memory:/slurm/uid_1/job_7/step_0\n",
		"the root":      "0::/\n",
		"another job's": "0::/" + top + "/job_8/step_0/slurm\n",
		"not a step's":  "0::/" + top + "/job_7/system\n",
		"a user's":      "0::/user.slice/step_0/job_7/step_0\n",
		"not mounted":   "0::/elsewhere/job_7/step_0/slurm\n",
	} {
		if got, err := jobCgroup(procSaying(t, paths, "cgroup2 "+mount+" cgroup2 rw 0 0\n"), grant.Grant{Job: 7}); err == nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}

// What root is to run for a step must be root's alone, and what it says is the reason why the step does not start.
func TestWhoRaisesTheWall(t *testing.T) {
	held := grant.Grant{Job: 7, Isolation: grant.IsolationWall}
	if err := raise(Step{Job: 7}, held, "/x/job_7"); err == nil || !strings.Contains(err.Error(), "vgpu-prolog found no vgpuctl") {
		t.Error(err)
	}
	program := filepath.Join(t.TempDir(), "vgpuctl")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"vgpuctl: $* [$HOME]\" >&2\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	held.WallCommand = []string{program, "wall", "raise"}
	const want = "the driver cannot hold the job to its memory: wall raise 7 /x/job_7 []"
	if err := raise(Step{Job: 7}, held, "/x/job_7"); err == nil || err.Error() != want {
		t.Error(err)
	}
	if err := unix.Chmod(program, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := raise(Step{Job: 7}, held, "/x/job_7"); err == nil || !strings.Contains(err.Error(), "not trusted") {
		t.Error(err)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// cancelling has audits cancel jobs until the test ends.
func cancelling(t *testing.T) {
	t.Helper()
	write := func(text string) {
		c.ExtraConfig = text
		if err := c.WriteConfig(); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { write("") })
	write("audit: cancel\n")
}

// logged runs audits that act until one has logged a line with these words.
func logged(t *testing.T, words ...string) {
	t.Helper()
	log := c.Home.Path("log", "vgpu.log")
	before, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "a line of the log", 60*time.Second, func() error {
		ok(t, root, tool("n1", "audit --act --apart 100ms"))
		text, err := os.ReadFile(log)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text[before.Size():])) {
			missing := false
			for _, word := range words {
				missing = missing || !strings.Contains(line, word)
			}
			if !missing {
				return nil
			}
		}
		return fmt.Errorf("it says %s", text[before.Size():])
	})
}

func TestAuditCancelEndsOneJob(t *testing.T) {
	begin(t)
	cancelling(t)
	var bystanders []string
	for _, u := range []cluster.User{one, two} {
		job, _ := holding(t, u, "--gres=vgpu:1 --vgpu-mem=1000")
		slicesOf(t, job)
		bystanders = append(bystanders, job)
	}
	t.Run("a task of an array", func(t *testing.T) {
		job, _ := holding(t, one, "-a 1-2 --gres=vgpu:1 --vgpu-mem=1000")
		awaitTask(t, job, 1, "RUNNING")
		awaitTask(t, job, 2, "RUNNING")
		id, _, _ := task(t, job, 2)
		if id != job {
			t.Fatalf("the last task has id %s, not the array's %s: nothing is tried here", id, job)
		}
		outside(t, one, booked(id)+onGPU(otherGPU(t, id)))
		logged(t, "cancelled", "job="+id)
		awaitTask(t, job, 2, "CANCELLED")
		if _, state, _ := task(t, job, 1); state != "RUNNING" {
			t.Errorf("the other task is %s", state)
		}
	})
	t.Run("a component of a heterogeneous job", func(t *testing.T) {
		first, second := heterogeneous(t, func() string {
			job, _ := holding(t, one, "-p all -w n2 --gres=vgpu:1 --vgpu-mem=1000 : -p all -w n1 --gres=vgpu:1 --vgpu-mem=1000")
			return job
		})
		outside(t, one, booked(second)+onGPU(otherGPU(t, second)))
		logged(t, "cancelled", "job="+second)
		awaitBoth(t, first, "CANCELLED")
	})
	for _, job := range bystanders {
		if now := state(t, job); now != "RUNNING" {
			t.Errorf("job %s of somebody else is %s", job, now)
		}
	}
}

// slurmCgroup makes one as Slurm does for a job. The cluster's Slurm makes none.
func slurmCgroup(t *testing.T, u cluster.User, job string) (folder string) {
	t.Helper()
	for _, hierarchy := range []string{"pids", "unified", ""} {
		// A folder of this cluster's own: others of this machine have such jobs as well.
		top := filepath.Join("/sys/fs/cgroup", hierarchy, fmt.Sprintf("slurm_e2e-%d", os.Getpid()))
		folders := []string{top, filepath.Join(top, fmt.Sprintf("uid_%d", u.UID))}
		folders = append(folders, filepath.Join(folders[1], "job_"+job))
		folders = append(folders, filepath.Join(folders[2], "step_0"))
		if err := os.MkdirAll(folders[3], 0o755); err != nil {
			continue
		}
		t.Cleanup(func() {
			for i := len(folders) - 1; i >= 0; i-- {
				until(t, "the end of a cgroup", 10*time.Second, func() error { return unix.Rmdir(folders[i]) })
			}
		})
		return folders[3]
	}
	t.Skip("no cgroup can be made here")
	return ""
}

// What the kernel says of a process goes before what its user says of it.
func TestTheAuditBelievesCgroups(t *testing.T) {
	begin(t)
	cancelling(t)
	job, _ := holding(t, one, "--gres=vgpu:1 --vgpu-mem=1000")
	slicesOf(t, job)
	without, _ := holding(t, one, "")
	awaitState(t, without, "RUNNING")
	t.Run("of another user's job", func(t *testing.T) {
		outside(t, two, booked(job)+onGPU(otherGPU(t, job)))
		wantStrays(t, "no-job "+two.Name+" 0")
		logged(t, "stray use", "no-job", two.Name)
		if now := state(t, job); now != "RUNNING" {
			t.Errorf("a user had another's job cancelled: it is %s", now)
		}
	})
	t.Run("of a job without slices", func(t *testing.T) {
		cgroup := slurmCgroup(t, one, without)
		pid := outside(t, one, booked(job)+onGPU(otherGPU(t, job)))
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
			t.Fatal(err)
		}
		wantStrays(t, "no-slice "+one.Name+" "+without)
		logged(t, "cancelled", "job="+without)
		awaitState(t, without, "CANCELLED")
		if now := state(t, job); now != "RUNNING" {
			t.Errorf("the job that the process named is %s", now)
		}
	})
}

// audits are the audits of this cluster that run.
func audits(t *testing.T) (pids []string) {
	t.Helper()
	folders, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range folders { // who ends meanwhile does not run
		line, _ := os.ReadFile(filepath.Join(folder, "cmdline"))
		environ, _ := os.ReadFile(filepath.Join(folder, "environ"))
		if bytes.Contains(line, []byte("vgpuctl\x00audit\x00--act")) && bytes.Contains(environ, []byte("SLURM_CONF="+c.Home.Path("etc", "slurm.conf"))) {
			pids = append(pids, filepath.Base(folder))
		}
	}
	return pids
}

// nvmlHangs until the test ends.
func nvmlHangs(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(c.ConfigPath())
	if err != nil {
		t.Fatal(err)
	}
	library := string(regexp.MustCompile(`nvml_library: "([^"]+)"`).FindSubmatch(text)[1])
	if err := os.Rename(library, library+".away"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Rename(library+".away", library); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mkfifo(library, 0o644); err != nil { // who opens it waits for somebody who never writes
		t.Fatal(err)
	}
}

// An audit that NVML does not answer holds no epilog up, and no number of jobs makes more than one of them.
func TestNoEpilogWaitsForNVML(t *testing.T) {
	begin(t)
	until(t, "the end of audits before", 60*time.Second, func() error {
		if pids := audits(t); len(pids) > 0 {
			return fmt.Errorf("%v run", pids)
		}
		return nil
	})
	const jobs = 6
	var release []func()
	var names []string
	for range jobs {
		job, end := holding(t, one, "--gres=vgpu:1 --vgpu-mem=1000")
		until(t, "job "+job, 30*time.Second, func() error {
			if output(t, one, job) == "" {
				return fmt.Errorf("it is %s", state(t, job))
			}
			return nil
		})
		names, release = append(names, job), append(release, end)
	}
	nvmlHangs(t)
	release[0]()
	awaitState(t, names[0], "COMPLETED")
	until(t, "an audit after it", 30*time.Second, func() error {
		if len(audits(t)) == 0 {
			return errors.New("there is none")
		}
		return nil
	})
	for _, end := range release[1:] {
		end()
	}
	for _, job := range names {
		awaitState(t, job, "COMPLETED")
	}
	if n := len(audits(t)); n != 1 { // one that an epilog waited for would be over
		t.Errorf("%d audits run after %d jobs, want one", n, jobs)
	}
	until(t, "the audits to give up", 150*time.Second, func() error {
		if pids := audits(t); len(pids) > 0 {
			return fmt.Errorf("%v still wait", pids)
		}
		return nil
	})
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

const nobody = 65534

// hierarchy is a step's real cgroups, as Slurm makes them.
type hierarchy struct {
	t    *testing.T
	root string // of Slurm's, below a mount of the kernel's
	file string
}

func (h hierarchy) folder(name string) string {
	h.t.Helper()
	path := filepath.Join(h.root, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		h.t.Skipf("no cgroup can be made: %v", err)
	}
	return path
}

// process starts one there.
func (h hierarchy) process(folder, program string, uid uint32) int {
	h.t.Helper()
	cmd := exec.Command(program, "60")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := cmd.Start(); err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if err := os.WriteFile(filepath.Join(folder, procsFile), []byte(strconv.Itoa(cmd.Process.Pid)), 0o644); err != nil {
		h.t.Fatal(err)
	}
	return cmd.Process.Pid
}

func (h hierarchy) says(folder string) string {
	h.t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, h.file))
	if err != nil {
		h.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// begun makes the folder of Slurm's and takes it away at the end, which comes after that of its processes.
func begun(t *testing.T, mount, root, file string) hierarchy {
	t.Helper()
	if mount == "" || os.Getuid() != 0 {
		t.Skip("no such hierarchy here, or not root")
	}
	h := hierarchy{t: t, root: filepath.Join(mount, root), file: file}
	t.Cleanup(func() {
		var folders []string
		_ = filepath.WalkDir(h.root, func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				folders = append(folders, path)
			}
			return nil
		})
		for _, folder := range slices.Backward(folders) {
			if err := os.Remove(folder); err != nil {
				t.Error(err)
			}
		}
		_ = os.Remove(filepath.Dir(h.root)) // another test may have it
	})
	return h
}

// stepd is a program of the name of Slurm's daemon.
func stepd(t *testing.T) string {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "slurmstepd")
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

var (
	auditor = audit.Auditor{Proc: "/proc", WholeNode: true, Grant: func(uint32) (grant.Grant, bool) { return grant.Grant{}, false }}
	granted = []state.Slice{{Job: 7, UID: nobody, Slice: device.Slice{Device: uuid}}, {Job: 8, UID: nobody, Slice: device.Slice{Device: uuid}}}
)

func TestAStepOfCgroup2IsFrozenBelowSlurmsOwnSwitch(t *testing.T) {
	h := begun(t, mountedCgroups().v2, fmt.Sprintf("vgpud-test-%d_slurmstepd.scope", os.Getpid()), freezeFileV2)
	user, slurm := h.folder("job_7/step_0/user"), h.folder("job_7/step_0/slurm")
	tasks := []string{h.folder("job_7/step_0/user/task_0"), h.folder("job_7/step_0/user/task_1")}
	daemon, pid := h.process(slurm, stepd(t), 0), h.process(tasks[0], "sleep", nobody)
	h.process(tasks[1], "sleep", nobody)
	step, ok := auditor.StepOf(granted, 7, pid)
	if !ok || step.Name != "0" || step.Controller != "" {
		t.Fatalf("%+v, %v", step, ok)
	}
	if _, ok := auditor.StepOf(granted, 8, pid); ok {
		t.Error("it is a step of another job as well")
	}
	f := Frozen{Job: 7, Files: mountedCgroups().frozenBy(step, auditor.IsStepd, pid)}
	if len(f.Files) != 2 {
		t.Fatalf("%+v", f)
	}
	if err := f.Freeze(); err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if h.says(task) != "1" {
			t.Errorf("%s goes on", task)
		}
	}
	if h.says(user) != "0" || h.says(slurm) != "0" || slices.Contains(membersBelow(user), daemon) {
		t.Error("more is frozen")
	}
	// Slurm suspends the job meanwhile, and it stays so.
	if err := writeControl(filepath.Join(user, freezeFileV2), "1"); err != nil {
		t.Fatal(err)
	}
	if err := f.Thaw(); err != nil {
		t.Fatal(err)
	}
	if h.says(tasks[0]) != "0" || h.says(user) != "1" {
		t.Error("it is not as Slurm has it")
	}
	if again := mountedCgroups().frozenBy(step, auditor.IsStepd, daemon); again != nil {
		t.Errorf("a process that is not there has a step: %+v", again)
	}
	if err := writeControl(filepath.Join(user, freezeFileV2), "0"); err != nil {
		t.Fatal(err)
	}
	if err := f.Kill(func() (Frozen, error) { return Frozen{}, nil }); err != nil {
		t.Fatal(err)
	}
}

func TestAStepOfCgroup1IsFrozenUnlessItHoldsTheDaemon(t *testing.T) {
	h := begun(t, mountedCgroups().freezer, fmt.Sprintf("vgpud-test-%d/uid_%d", os.Getpid(), nobody), freezeFileV1)
	folder := h.folder("job_7/step_batch")
	pid := h.process(folder, "sleep", nobody)
	step, ok := auditor.StepOf(granted, 7, pid)
	if !ok || step.Name != "batch" || step.Controller != "freezer" {
		t.Fatalf("%+v, %v", step, ok)
	}
	f := Frozen{Job: 7, Files: mountedCgroups().frozenBy(step, auditor.IsStepd, pid)}
	if err := f.Freeze(); err != nil || len(f.Files) != 1 || h.says(folder) == "THAWED" {
		t.Fatalf("%+v, %v: %s", f, err, h.says(folder))
	}
	if again := mountedCgroups().frozenBy(step, auditor.IsStepd, pid); again != nil {
		t.Error("what somebody else has frozen is taken for ours")
	}
	if err := f.Thaw(); err != nil || h.says(folder) != "THAWED" {
		t.Fatal(err, h.says(folder))
	}
	h.process(folder, stepd(t), 0)
	if files := mountedCgroups().frozenBy(step, auditor.IsStepd, pid); files != nil {
		t.Errorf("its daemon would be frozen: %+v", files)
	}
}

// A cgroup that its user has made is not Slurm's, and nothing is frozen by its name.
func TestWhatAUserCallsAStepIsNone(t *testing.T) {
	h := begun(t, mountedCgroups().v2, fmt.Sprintf("vgpud-test-%d.slice/user.slice", os.Getpid()), freezeFileV2)
	pid := h.process(h.folder("job_7/step_0"), "sleep", nobody)
	if step, ok := auditor.StepOf(granted, 7, pid); ok {
		t.Errorf("%+v", step)
	}
	if _, ok := auditor.StepOf(granted, 7, os.Getpid()); ok {
		t.Error("a process that Slurm has put nowhere is of a step")
	}
}

// Where Slurm has no cgroups, a step is what its daemon has started.
func TestAStepWithoutCgroups(t *testing.T) {
	for _, name := range []string{"slurmstepd", "slurmstepd-wlm" /* Debian's */} {
		t.Run(name, func(t *testing.T) { stepBelow(t, filepath.Join(t.TempDir(), name)) })
	}
}

func stepBelow(t *testing.T, daemon string) {
	if os.Getuid() != 0 {
		t.Skip("not root")
	}
	shell, err := os.ReadFile("/bin/bash")
	if err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(daemon, shell, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(daemon, "-c", `setpriv --reuid=65534 --clear-groups sh -c 'sleep 60 & echo $! $$; wait'; true`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var sleeper, task int
	if _, err := fmt.Fscan(out, &sleeper, &task); err != nil {
		t.Skip("setpriv is not here: ", err)
	}
	t.Cleanup(func() { _ = syscall.Kill(sleeper, syscall.SIGKILL); _ = cmd.Wait() })
	var pids []int
	for _, p := range auditor.Below(sleeper, nobody) {
		pids = append(pids, p.PID)
	}
	if want := []int{min(sleeper, task), max(sleeper, task)}; !slices.Equal(pids, want) {
		t.Errorf("%v, want %v", pids, want)
	}
	if slices.Contains(pids, cmd.Process.Pid) {
		t.Error("the daemon is among them")
	}
}

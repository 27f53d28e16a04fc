// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// calls follows a program and returns its calls of the kernel that put files on disk and into place, in order.
func calls(t *testing.T, cmd *exec.Cmd) []string {
	t.Helper()
	names := map[uint64]string{
		syscall.SYS_FSYNC: "sync", syscall.SYS_FDATASYNC: "sync",
		syscall.SYS_RENAME: "rename", syscall.SYS_RENAMEAT: "rename", 316: "rename", // renameat2
	}
	runtime.LockOSThread() // whoever follows is a thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		t.Skip("this system lets nobody follow a program")
	} else if err != nil {
		t.Fatal(err)
	}
	var all []string
	entered := map[int]bool{} // by thread: between the beginning and the end of a call
	first := true
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WALL, nil)
		if errors.Is(err, syscall.ECHILD) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if status.Exited() || status.Signaled() {
			if pid == cmd.Process.Pid && (!status.Exited() || status.ExitStatus() != 0) {
				t.Errorf("the writer ended with %#x", status)
			}
			continue
		}
		if first {
			first = false
			const options = syscall.PTRACE_O_TRACESYSGOOD | syscall.PTRACE_O_TRACECLONE | syscall.PTRACE_O_TRACEFORK
			if err := syscall.PtraceSetOptions(pid, options); err != nil {
				t.Fatal(err)
			}
		}
		pass := 0
		switch signal := status.StopSignal(); signal {
		case syscall.SIGTRAP | 0x80:
			var registers syscall.PtraceRegs
			if err := syscall.PtraceGetRegs(pid, &registers); err == nil && !entered[pid] && names[registers.Orig_rax] != "" {
				all = append(all, names[registers.Orig_rax])
			}
			entered[pid] = !entered[pid]
		case syscall.SIGTRAP, syscall.SIGSTOP: // of following itself
		default:
			pass = int(signal)
		}
		if err := syscall.PtraceSyscall(pid, pass); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Fatal(err)
		}
	}
}

// A node that loses power must find the state before or after, not an empty file under the right name.
func TestTheStateIsOnDiskBeforeItIsInPlace(t *testing.T) {
	store := newStore(t)
	put(t, store, 1)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childRun+"="+string(store.Dir), childJobs+"=2")
	got := calls(t, cmd)
	rename := slices.Index(got, "rename")
	if rename < 1 || got[rename-1] != "sync" {
		t.Errorf("got %s, want a sync before the first rename", strings.Join(got, " "))
	}
	if after, err := store.Read(); err != nil || len(after.Slices) != 2 {
		t.Errorf("got %v, %v", after, err)
	}
}

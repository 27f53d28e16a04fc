// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package privatemounts gives a test program a mount namespace of its own, so that what its tests
// mount is seen by nobody else and goes away with it.
package privatemounts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// mark tells the program that it is in the namespace already.
const mark = "VGPU_TEST_PRIVATE_MOUNTS"

// Enter runs this program again in the namespace and ends with its exit code. Where that is forbidden,
// or done already, it returns. Call it first in TestMain.
func Enter() {
	if Entered() || os.Geteuid() != 0 {
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	}
}

// Entered says whether tests may mount.
func Entered() bool { return os.Getenv(mark) != "" }

// Clear unmounts what is mounted below dir, so that it can be removed.
func Clear(dir string) {
	data, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			_ = unix.Unmount(fields[4], unix.MNT_DETACH)
		}
	}
}

// Full is a folder that is a file system of its own without any room left, until the test ends. Files that prepare makes there are
// left. The test is skipped where it may not mount.
func Full(t testing.TB, prepare func(folder string)) string {
	t.Helper()
	if !Entered() {
		t.Skip("what is full must be a file system of its own")
	}
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "size=1m,mode=755"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	if prepare != nil {
		prepare(folder)
	}
	err := os.WriteFile(filepath.Join(folder, "filling"), make([]byte, 1<<20+1), 0o600)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("it is not full: %v", err)
	}
	return folder
}

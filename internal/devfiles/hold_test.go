// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package devfiles

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

// held is a node of two GPUs, the second Slurm's own, whose files are closed and held.
func held(t *testing.T) Set {
	t.Helper()
	if !privatemounts.Entered() {
		t.Skip("nothing can be mounted here")
	}
	s := node(t, 0, 1)
	s.Leave = []int{1}
	t.Cleanup(func() { privatemounts.Clear(s.Dir) })
	if err := errors.Join(s.Close(), s.Hold()); err != nil {
		t.Fatal(err)
	}
	return s
}

// As every program of root's does that starts the driver's libraries.
func TestWhatIsHeldStaysClosed(t *testing.T) {
	s := held(t)
	if err := os.Chmod(s.path(0), 0o666); !errors.Is(err, unix.EROFS) {
		t.Errorf("its mode can be changed: %v", err)
	}
	if err := os.Remove(s.path(0)); !errors.Is(err, unix.EBUSY) {
		t.Errorf("it can be made anew: %v", err)
	}
	file, err := os.OpenFile(s.path(0), os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("root cannot open it: %v", err)
	}
	file.Close()
	if err := errors.Join(s.Close(), s.Hold()); err != nil {
		t.Fatal(err)
	}
	want(t, "held", modes(t, s, 0, 1), "600 0:0", "666 0:0", "666 0:0", "none")
	if files, err := s.Look(); err != nil || !files[0].Held || files[0].Wrong() || files[1].Held {
		t.Errorf("%+v, %v", files, err)
	}
	s.Group = "7"
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, "for a group", modes(t, s, 0), "660 0:7", "666 0:0")
}

// A namespace of somebody else's may have the files without what is mounted over them.
func TestWhatIsBelowOpensNothing(t *testing.T) {
	s := held(t)
	below, err := unix.OpenTree(unix.AT_FDCWD, s.Dir, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC)
	if err != nil {
		t.Skip(err)
	}
	defer unix.Close(below)
	if err := unix.Fchmodat(below, filepath.Base(s.path(0)), 0o666, 0); err != nil {
		t.Fatal(err)
	}
	want(t, "here", modes(t, s, 0), "600 0:0", "666 0:0")
}

func TestReopenTakesAwayOnlyItsOwnMounts(t *testing.T) {
	s := held(t)
	for range 2 {
		if err := s.Reopen(); err != nil {
			t.Fatal(err)
		}
		want(t, "reopened", modes(t, s, 0, 1), "666 0:0", "666 0:0", "666 0:0", "none")
	}
	if _, err := os.Lstat(s.cover(0)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was mounted is left: %v", err)
	}
	if err := unix.Mount(s.stepFile(0), s.path(1), "", unix.MS_BIND, ""); err != nil { // not ours
		t.Fatal(err)
	}
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Unmount(s.path(1), 0); err != nil {
		t.Errorf("another's mount is gone: %v", err)
	}
}

// Whoever took the folder away first, as `make uninstall` does, hears what is in the way.
func TestWhatIsMountedWithoutItsFolderIsNamed(t *testing.T) {
	s := held(t)
	if err := os.RemoveAll(s.StepDir); err != nil {
		t.Fatal(err)
	}
	if err := s.Reopen(); err == nil || !strings.Contains(err.Error(), "umount "+s.path(0)) {
		t.Errorf("it says %v", err)
	}
	if err := errors.Join(unix.Unmount(s.path(0), 0), s.Reopen()); err != nil {
		t.Error(err)
	}
	want(t, "reopened", modes(t, s, 0, 1), "666 0:0", "none", "666 0:0", "none")
}

// The kernel lets nobody mount a /proc in a user namespace where something is mounted on a file below the one that is there. As the
// driver's page, which no machine without the driver has, stands that of a process whose name says the same.
func TestHoldingLeavesProcToContainers(t *testing.T) {
	if !privatemounts.Entered() {
		t.Skip("nothing can be mounted here")
	}
	asked := func() (string, error) {
		cmd := exec.Command("unshare", "-Urpf", "--mount-proc", "true")
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 12345, Gid: 12345}}
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	if said, err := asked(); err != nil {
		t.Skipf("no user may mount a /proc of his own here: %v, %s", err, said)
	}
	driver := exec.Cmd{Path: "/bin/sleep", Args: []string{"sleep\nModifyDeviceFiles: 1\n", "600"}}
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(driver.Process.Kill(), driver.Wait()) })
	s := node(t, 0)
	s.Proc = t.TempDir()
	page := "/proc/" + strconv.Itoa(driver.Process.Pid) + "/cmdline"
	if err := errors.Join(os.MkdirAll(filepath.Join(s.Proc, "driver/nvidia"), 0o755), os.Symlink(page, filepath.Join(s.Proc, "driver/nvidia/params"))); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { privatemounts.Clear(s.Dir); _ = unix.Unmount(page, unix.MNT_DETACH) })
	if modifies, known := s.DriverModifies(); !modifies || !known {
		t.Fatal("the page does not say what it is to")
	}
	if err := errors.Join(s.Close(), s.Hold()); err != nil {
		t.Fatal(err)
	}
	if said, err := asked(); err != nil {
		t.Errorf("no user may mount a /proc of his own any more: %v, %s", err, strings.TrimSpace(said))
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package devfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

// node makes a folder with the device files of a node's GPUs.
func node(t *testing.T, minors ...int) Set {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root makes device files")
	}
	dir := t.TempDir()
	s := Set{Dir: dir, StepDir: filepath.Join(dir, "steps")}
	for _, minor := range minors {
		if err := errors.Join(unix.Mknod(s.path(minor), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))), os.Chmod(s.path(minor), 0o666)); err != nil {
			t.Skipf("no device file can be made here: %v", err)
		}
	}
	return s
}

func modes(t *testing.T, s Set, minors ...int) (found []string) {
	t.Helper()
	for _, minor := range minors {
		for _, path := range []string{s.path(minor), s.stepFile(minor)} {
			st, err := lstat(path)
			if err != nil {
				found = append(found, "none")
				continue
			}
			found = append(found, fmt.Sprintf("%o %d:%d", st.Mode&0o7777, st.Uid, st.Gid))
		}
	}
	return found
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestCloseAndReopen(t *testing.T) {
	s := node(t, 0, 3)
	s.Leave = []int{3}
	defer unix.Umask(unix.Umask(0o077))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		want(t, "closed", modes(t, s, 0, 3), "600 0:0", "666 0:0", "666 0:0", "none")
	}
	s.Group = "7"
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, "with a group", modes(t, s, 0), "660 0:7", "666 0:0")
	if err := os.Chown(s.path(0), 0, 8); err != nil {
		t.Fatal(err)
	}
	if files, err := s.Look(); err != nil || !files[0].Wrong() {
		t.Errorf("a file of another group: %+v, %v", files, err)
	}
	s.Group = "no-such-group"
	if err := s.Close(); err == nil {
		t.Error("a group that is not there is no error")
	}
	want(t, "without its group", modes(t, s, 0), "600 0:0", "666 0:0")
	if err := s.Reopen(); err != nil {
		t.Fatal(err)
	}
	want(t, "reopened", modes(t, s, 0, 3), "666 0:0", "666 0:0", "666 0:0", "none")
}

func TestAFileOfAnotherDeviceIsMadeAnew(t *testing.T) {
	s := node(t, 0)
	if err := errors.Join(os.Mkdir(s.StepDir, 0o755), unix.Mknod(s.stepFile(0), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 5)))); err != nil {
		t.Fatal(err)
	}
	if files, err := s.Look(); err != nil || len(files) != 1 || !files[0].Wrong() || *files[0].StepFile {
		t.Errorf("%+v, %v", files, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if st, err := lstat(s.stepFile(0)); err != nil || st.Rdev != unix.Mkdev(1, 3) {
		t.Errorf("%v, %v", st.Rdev, err)
	}
	if files, err := s.Look(); err != nil || files[0].Wrong() || files[0].State != Closed {
		t.Errorf("%+v, %v", files, err)
	}
}

// In a step the file of a GPU is the one that steps are given.
func TestNothingIsChangedInAStep(t *testing.T) {
	s := node(t, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Remove(s.path(0)), os.Link(s.stepFile(0), s.path(0))); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{"close": s.Close, "reopen": s.Reopen} {
		if err := change(); !errors.Is(err, ErrInStep) {
			t.Errorf("%s: %v", name, err)
		}
	}
	want(t, "in a step", modes(t, s, 0), "666 0:0", "666 0:0")
}

func TestWhatIsNoDeviceIsLeftAlone(t *testing.T) {
	s := node(t)
	if err := os.WriteFile(s.path(0), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/null", s.path(1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil {
		t.Error("a file and a link were closed")
	}
	if st, err := os.Stat("/dev/null"); err != nil || st.Mode().Perm() != 0o666 {
		t.Errorf("/dev/null has mode %v, %v", st.Mode(), err)
	}
}

// Where nvidia-modprobe may change nothing it makes nothing either.
func TestWhatTheDriverMayNotMakeIsMade(t *testing.T) {
	s := node(t, 0)
	s.Proc, s.Leave = t.TempDir(), []int{2}
	page := func(name, text string) {
		t.Helper()
		path := filepath.Join(s.Proc, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	if _, known := s.DriverModifies(); known {
		t.Error("a driver that is not there says something")
	}
	page("driver/nvidia/params", "DeviceFileMode: 438\nModifyDeviceFiles: 1\n")
	if modifies, known := s.DriverModifies(); !modifies || !known {
		t.Error("the driver may modify files")
	}
	page("driver/nvidia/params", "DeviceFileMode: 438\nModifyDeviceFiles: 0\n")
	page("devices", "Character devices:\n  1 mem\n195 nvidia\n195 nvidia-modeset\n195 nvidiactl\n\nBlock devices:\n")
	for minor := range 3 {
		page(fmt.Sprintf("driver/nvidia/gpus/0000:%02d:00.0/information", minor), fmt.Sprintf("Model: \t\t NVIDIA H200\nDevice Minor: \t %d\n", minor))
	}
	files, err := s.Look()
	if err != nil || len(files) != 3 || files[1].State != Missing || !files[1].Wrong() {
		t.Fatalf("%+v, %v", files, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want(t, "made", modes(t, s, 0, 1, 2), "600 0:0", "666 0:0", "600 0:0", "666 0:0", "666 0:0", "none")
	for name, device := range map[string]uint64{"nvidiactl": unix.Mkdev(195, 255), "nvidia-modeset": unix.Mkdev(195, 254), "nvidia1": unix.Mkdev(195, 1), "nvidia2": unix.Mkdev(195, 2)} {
		if st, err := lstat(filepath.Join(s.Dir, name)); err != nil || !isDevice(st, device) {
			t.Errorf("%s: %v, %v", name, st.Rdev, err)
		}
	}
}

func TestMain(m *testing.M) {
	privatemounts.Enter()
	os.Exit(m.Run())
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package builds

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

func TestMain(m *testing.M) {
	privatemounts.Enter()
	os.Exit(m.Run())
}

// installed makes a run directory and the files of a build, of which the library says how long a ledger it needs.
func installed(t *testing.T) (dir rundir.Dir, library string) {
	t.Helper()
	dir = rundir.Dir(t.TempDir())
	t.Cleanup(func() { _ = unix.Unmount(dir.Builds(), unix.MNT_DETACH) })
	if err := os.Mkdir(dir.Jobs(), 0o755); err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for _, name := range grant.BuildFiles() {
		write(t, filepath.Join(folder, name), name)
	}
	library = filepath.Join(folder, grant.LibraryFile)
	cmd := exec.Command("cc", "-shared", "-fPIC", "-I../../interposer", "-o", library, "../../interposer/api/layout.c")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir, library
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(text), 0o755)); err != nil {
		t.Fatal(err)
	}
}

func keep(t *testing.T, dir rundir.Dir, library string) string {
	t.Helper()
	path, err := Keep(dir, library)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func builds(t *testing.T, dir rundir.Dir) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir.Builds())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestABuildIsKeptOnce(t *testing.T) {
	dir, library := installed(t)
	if _, err := Find(dir, library); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("found before: %v", err)
	}
	before := unix.Umask(0o077)
	first := keep(t, dir, library)
	unix.Umask(before)
	for _, name := range grant.BuildFiles() {
		info, err := os.Lstat(filepath.Join(filepath.Dir(first), name))
		if err != nil || info.Mode() != 0o755 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if again := keep(t, dir, library); again != first {
		t.Errorf("kept as %s, then as %s", first, again)
	}
	if found, err := Find(dir, library); err != nil || found != first {
		t.Errorf("found %s, %v", found, err)
	}
	write(t, filepath.Join(filepath.Dir(library), "libcuda-guard.so"), "of an upgrade")
	if other := keep(t, dir, library); other == first {
		t.Error("a changed guard is the same build")
	}
	if err := os.RemoveAll(filepath.Dir(library)); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(filepath.Dir(first), "libcuda-guard.so")); err != nil || string(data) != "libcuda-guard.so" {
		t.Errorf("after a removal: %q, %v", data, err)
	}
	if _, err := Keep(dir, library); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("keep what was removed: %v", err)
	}
	if names := builds(t, dir); len(names) != 2 {
		t.Errorf("there are %v", names)
	}
}

func TestFilesOfSeveralBuildsAreNotKept(t *testing.T) {
	for what, source := range map[string]string{
		"a library that does not say":         "",
		"a library that needs longer ledgers": fmt.Sprintf("unsigned v __attribute__((used, section(\".slurm_vgpu.layout\"))) = %d;", ledger.Bytes()+8),
		"a library of shorter ledgers":        fmt.Sprintf("unsigned v __attribute__((used, section(\".slurm_vgpu.layout\"))) = %d;", ledger.Bytes()-ledger.FigureBytes),
		"a library with too much to say":      "unsigned v[2] __attribute__((used, section(\".slurm_vgpu.layout\"))) = {5, 5};",
	} {
		t.Run(what, func(t *testing.T) {
			dir, library := installed(t)
			file := filepath.Join(t.TempDir(), "layout.c")
			write(t, file, source)
			if out, err := exec.Command("cc", "-shared", "-fPIC", "-o", library, file).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			if path, err := Keep(dir, library); !errors.Is(err, ErrMixed) {
				t.Errorf("kept as %s, %v", path, err)
			}
			if names := builds(t, dir); len(names) != 0 {
				t.Errorf("there are %v", names)
			}
		})
	}
}

// A user can neither be the owner of what is kept nor write where it is.
func TestWhatOthersCanWriteIsNotKept(t *testing.T) {
	dir, library := installed(t)
	guard := filepath.Join(filepath.Dir(library), "libcuda-guard.so")
	if err := os.Chmod(guard, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Keep(dir, library); !errors.Is(err, trusted.ErrUntrusted) {
		t.Errorf("a guard that all can write: %v", err)
	}
	write(t, guard, "")
	first := keep(t, dir, library)
	if err := os.Chmod(dir.Builds(), 0o777); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func(rundir.Dir, string) (string, error){"find": Find, "keep": Keep} {
		if path, err := do(dir, library); !errors.Is(err, trusted.ErrUntrusted) {
			t.Errorf("%s in a folder that all can write: %s, %v", what, path, err)
		}
	}
	if err := os.Chmod(dir.Builds(), 0o755); err != nil {
		t.Fatal(err)
	}
	if again := keep(t, dir, library); again != first {
		t.Errorf("kept as %s, then as %s", first, again)
	}
	if !privatemounts.Entered() {
		return
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir.Builds(), &st); err != nil || st.Blocks*uint64(st.Bsize) != fileSystemBytes || st.Flags&(unix.ST_NOSUID|unix.ST_NODEV) == 0 {
		t.Errorf("its file system: %+v, %v", st, err)
	}
}

// What a prolog that is killed leaves is no build, and no later prolog's trouble.
func TestBuildsThatNoJobNamesGo(t *testing.T) {
	dir, library := installed(t)
	long := time.Now().Add(-2 * Grace)
	age := func(name string) {
		if err := os.Chtimes(filepath.Join(dir.Builds(), name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	var names []string
	for _, text := range []string{"a running job's", "one that went", "one that comes", "installed"} {
		write(t, filepath.Join(filepath.Dir(library), "libcuda-guard.so"), text)
		names = append(names, filepath.Base(filepath.Dir(keep(t, dir, library))))
	}
	if err := os.Mkdir(filepath.Join(dir.Builds(), unfinished+"1"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{names[0], names[1], names[3], unfinished + "1"} {
		age(name)
	}
	if err := os.Mkdir(dir.Job(7), 0o755); err != nil {
		t.Fatal(err)
	}
	g := grant.Grant{Job: 7, Library: filepath.Join(dir.Builds(), names[0], grant.LibraryFile), Slices: []device.Slice{{Device: "GPU-1", MemMiB: 1}}}
	if err := grant.Write(dir.Grant(7), g); err != nil {
		t.Fatal(err)
	}
	if !Several(dir, library) {
		t.Error("there is nothing to sweep")
	}
	if err := os.Mkdir(dir.Job(8), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, dir.Grant(8), "of a release to come")
	if removed, err := Sweep(dir, library); removed != 0 || err == nil {
		t.Errorf("beside a grant that cannot be read: %d, %v", removed, err)
	}
	if err := os.RemoveAll(dir.Job(8)); err != nil {
		t.Fatal(err)
	}
	if removed, err := Sweep(dir, library); removed != 2 || err != nil {
		t.Errorf("removed %d, %v", removed, err)
	}
	left := strings.Join(builds(t, dir), " ")
	for i, stays := range []bool{true, false, true, true} {
		if strings.Contains(left, names[i]) != stays {
			t.Errorf("%s (the %d. of %v): stays is to be %t, there are %s", names[i], i, names, stays, left)
		}
	}
	if err := os.Remove(library); err != nil {
		t.Fatal(err)
	}
	age(names[2])
	age(names[3])
	if removed, err := Sweep(dir, library); removed != 2 || err != nil {
		t.Errorf("after the package went, removed %d, %v", removed, err)
	}
}

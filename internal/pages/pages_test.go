// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

func TestMain(m *testing.M) {
	privatemounts.Enter()
	os.Exit(m.Run())
}

// aJob makes the folder of a job with what belongs there, in a folder that is still empty.
func aJob(t *testing.T) (folder string, mounted bool) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "pages", "7")
	if err := os.Mkdir(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Unmount(filepath.Dir(folder), unix.MNT_DETACH)
	})
	before := unix.Umask(0o077)
	defer unix.Umask(before)
	for range 2 { // a second time as if there had been none
		var err error
		if mounted, err = Make(folder); err != nil {
			t.Fatal(err)
		}
		if mounted != privatemounts.Entered() {
			t.Fatalf("mounted is %t, and tests may mount is %t", mounted, !mounted)
		}
		uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
		if err := ledger.Create(filepath.Join(folder, "ledger"), 7, 1, uid, gid); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(ledger.CreateGroups(filepath.Join(folder, "groups"), 7, uid, gid), ledger.CreateTime(filepath.Join(folder, "time"), 7, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(folder); err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("the folder: %v, %v", info, err)
	}
	return folder, mounted
}

func TestFilesGrowOnlySoFar(t *testing.T) {
	folder, mounted := aJob(t)
	if !mounted {
		t.Skip("mounts are forbidden here")
	}
	file, err := os.OpenFile(filepath.Join(folder, "ledger"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	written, room := 0, spareBytes+os.Getpagesize()+int(ledger.GroupsBytes()) // the last page has room, and groups are holes
	for err == nil && written < 2*room {
		var n int
		n, err = file.Write(make([]byte, 4096))
		written += n
	}
	if !errors.Is(err, unix.ENOSPC) || written > room {
		t.Errorf("it grew by %d bytes: %v", written, err)
	}
	var made int
	for err = nil; err == nil && made < 1000; made++ {
		err = os.WriteFile(filepath.Join(folder, "file"+string(rune('a'+made))), nil, 0o600)
	}
	if !errors.Is(err, unix.ENOSPC) || made > maxFiles {
		t.Errorf("%d more files have room: %v", made, err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(folder, &st); err != nil || st.Flags&(unix.ST_NODEV|unix.ST_NOSUID|unix.ST_NOEXEC) != unix.ST_NODEV|unix.ST_NOSUID|unix.ST_NOEXEC {
		t.Errorf("its flags are %#x, %v", st.Flags, err)
	}
}

func TestRemoveLeavesNothing(t *testing.T) {
	folder, _ := aJob(t)
	file, err := os.OpenFile(filepath.Join(folder, "ledger"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 2 { // nothing is as good as something
		if err := Remove(folder); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(folder); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the folder is there: %v", err)
		}
	}
	// What a process has open is empty and nobody's, of a file system of its own too.
	if info, err := file.Stat(); err != nil || info.Size() != 0 || info.Mode().Perm() != 0 {
		t.Errorf("what is open has %d bytes and mode %v: %v", info.Size(), info.Mode(), err)
	}
}

// Whatever stands there, root's folder is not left by it.
func TestRemoveFollowsNoLinks(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "7")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, filepath.Join(folder, "ledger")); err != nil {
		t.Fatal(err)
	}
	if err := Remove(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, folder); err != nil {
		t.Fatal(err)
	}
	if err := Remove(folder); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(kept); err != nil || string(text) != "kept" {
		t.Errorf("got %q, %v", text, err)
	}
}

func TestWhatCannotBeMadeOrTakenAwayIsSaid(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{filepath.Join(dir, "none", "7"), filepath.Join(dir, "file", "7")} {
		if mounted, err := Make(folder); err == nil || mounted {
			t.Errorf("%s: made %t, %v", folder, mounted, err)
		}
	}
	folder, mounted := aJob(t)
	if !mounted {
		t.Skip("mounts are forbidden here")
	}
	if err := unix.Unmount(folder, 0); err != nil {
		t.Fatal(err)
	}
	below := filepath.Join(folder, "x")
	if err := errors.Join(os.Mkdir(below, 0o755), unix.Mount("tmpfs", below, "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	if err := Remove(folder); !errors.Is(err, unix.EBUSY) {
		t.Errorf("removed: %v", err)
	}
	if mounted, err := Make(folder); !errors.Is(err, unix.EBUSY) || mounted {
		t.Errorf("made %t, %v", mounted, err)
	}
	if err := unix.Unmount(below, 0); err != nil {
		t.Fatal(err)
	}
	if mounted, err := Make(folder); err != nil || !mounted {
		t.Errorf("not made: %t, %v", mounted, err)
	}
}

// Somebody has filled a mount namespace of his own with copies of the folder above: what is made is in none of them.
func TestCopiesWithoutNumberHinderNobody(t *testing.T) {
	folder, mounted := aJob(t)
	if !mounted {
		t.Skip("mounts are forbidden here")
	}
	parent := filepath.Dir(folder)
	privatemounts.Copied(t, parent)
	if mounted, err := Make(filepath.Join(parent, "10")); err != nil || !mounted {
		t.Fatalf("%t, %v", mounted, err)
	}
	if err := Remove(folder); err != nil {
		t.Error(err)
	}
}

func TestRoomIsWholePages(t *testing.T) {
	page, files := int64(os.Getpagesize()), ledger.Bytes()+ledger.GroupsBytes()+ledger.TimeBytes()
	if got := bytesOfPages(); got%page != 0 || got < files || got >= files+3*page {
		t.Errorf("%d bytes for %d in three files", got, files)
	}
}

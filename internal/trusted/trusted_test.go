// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package trusted

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const limit = 1000

func file(t *testing.T, bytes int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", bytes)), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestFilesUpToTheLimitAreReadWhole(t *testing.T) {
	for _, bytes := range []int{0, 1, limit - 1, limit} {
		if got, err := ReadFile(file(t, bytes), limit); err != nil || len(got) != bytes {
			t.Errorf("%d bytes: got %d, %v", bytes, len(got), err)
		}
	}
}

// Half a file may say something else than the whole one.
func TestLargerFilesAreNotReadAtAll(t *testing.T) {
	for _, bytes := range []int{limit + 1, 10 * limit} {
		if got, err := ReadFile(file(t, bytes), limit); !errors.Is(err, ErrUntrusted) || got != nil {
			t.Errorf("%d bytes: got %d, %v", bytes, len(got), err)
		}
	}
}

func TestFilesThatOthersCanChangeAreNotRead(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"group":  func(path string) error { return os.Chmod(path, 0o664) },
		"others": func(path string) error { return os.Chmod(path, 0o646) },
		"owner":  func(path string) error { return os.Chown(path, 1, 0) },
		"link": func(path string) error {
			return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path))
		},
		"fifo":   func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) },
		"folder": func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) },
	} {
		t.Run(name, func(t *testing.T) {
			path := file(t, 1)
			if err := spoil(path); err != nil {
				if os.Geteuid() != 0 {
					t.Skip("only root can give a file away")
				}
				t.Fatal(err)
			}
			if _, err := ReadFile(path, limit); !errors.Is(err, ErrUntrusted) {
				t.Errorf("got %v", err)
			}
			if _, err := ReadForeign(path, 1, 1); !errors.Is(err, ErrUntrusted) {
				t.Errorf("in a tree of its user's: got %v", err)
			}
		})
	}
}

func TestAFileThatIsReplacedIsTrustedAgain(t *testing.T) {
	path := file(t, 1)
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	for _, spoil := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.Chmod(path, 0o666) },
		func() error { return errors.Join(os.Rename(path, path+".real"), os.Symlink(path+".real", path)) },
		func() error { return os.Chmod(path, 0o200) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		if err := WriteFile(path, []byte("new"), 0o644); err != nil {
			t.Error(err)
		}
		if info, err := os.Lstat(path); err != nil || info.Mode() != 0o644 {
			t.Errorf("%v, %v", info, err)
		}
		if text, err := ReadFile(path, limit); err != nil || string(text) != "new" {
			t.Errorf("got %q, %v", text, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, nil, 0o644); err == nil {
		t.Error("a folder was replaced")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestMissingFilesAreMissing(t *testing.T) {
	if _, err := ReadFile(filepath.Join(t.TempDir(), "none"), limit); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrUntrusted) {
		t.Errorf("got %v", err)
	}
}

func TestWhatCannotBeReadIsAnError(t *testing.T) {
	// Root's own file of which nothing can be read at the beginning.
	if got, err := ReadFile("/proc/self/mem", limit); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrUntrusted) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestFilesAreClosed(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // which closes what nobody holds any more
	path := file(t, 1)
	shut := file(t, 1)
	if err := os.Chmod(shut, 0o666); err != nil {
		t.Fatal(err)
	}
	open := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	before := open()
	for range 10 {
		_, err := ReadFile(path, limit)
		if _, shutErr := ReadFile(shut, limit); err != nil || !errors.Is(shutErr, ErrUntrusted) {
			t.Fatal(err, shutErr)
		}
		if err := WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if after := open(); after > before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

// In a tree of his own a user puts what he likes at a name: a device that does something when it is opened, or a file
// of the kernel's, which has no size.
func TestNothingElseIsOpenedInATreeOfAUsers(t *testing.T) {
	if got, err := ReadForeign(file(t, 3), 3, 3); err != nil || len(got) != 3 {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	for _, path := range []string{file(t, 4), file(t, 2), "/proc/self/stat"} {
		if _, err := ReadForeign(path, 3, 3); !errors.Is(err, ErrUntrusted) {
			t.Errorf("%s: got %v", path, err)
		}
	}
	// As with a device, that the file is opened can be seen from outside.
	path := filepath.Join(t.TempDir(), "fifo")
	notify, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(notify)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.InotifyAddWatch(notify, path, unix.IN_OPEN); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		read func(string, int64) ([]byte, error)
		want error
	}{{func(path string, size int64) ([]byte, error) { return ReadForeign(path, size, size) }, unix.EAGAIN}, {ReadFile, nil}} {
		if _, err := tc.read(path, 0); !errors.Is(err, ErrUntrusted) {
			t.Errorf("a fifo: got %v", err)
		}
		if _, err := unix.Read(notify, make([]byte, 4096)); err != tc.want { //nolint:errorlint // a plain errno
			t.Errorf("whether it was opened: %v, want %v", err, tc.want)
		}
	}
}

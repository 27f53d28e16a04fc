// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package pages

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Adopt shows the pages of jobs that builds before layout 8 started, which are in a folder that all their steps share, where jobs' pages are
// now. Most nodes have no such folder. Whoever ends a job there takes both away, under the lock of the state.
func Adopt(older, parent string) error {
	if _, err := os.Lstat(older); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	// A file of root's alone: every user can open the folder, and keep a lock on it (flock(2)).
	lock, err := os.OpenFile(older+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return &os.PathError{Op: "lock", Path: lock.Name(), Err: err}
	}
	entries, err := os.ReadDir(older)
	if errors.Is(err, fs.ErrNotExist) { // its last job has ended
		return nil
	}
	if err == nil {
		err = mkdir(parent) // a step may come before the first prolog of this build
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if _, notJob := strconv.ParseUint(entry.Name(), 10, 32); notJob != nil || !entry.IsDir() {
			continue
		}
		if bindErr := adopt(filepath.Join(older, entry.Name()), filepath.Join(parent, entry.Name())); bindErr != nil {
			err = errors.Join(err, bindErr)
		}
	}
	return err
}

func adopt(from, to string) error {
	var is, was unix.Stat_t
	if err := mkdir(to); err != nil {
		return err
	}
	if err := errors.Join(unix.Lstat(from, &was), unix.Lstat(to, &is)); err != nil {
		return err
	}
	if is.Dev == was.Dev && is.Ino == was.Ino { // by an earlier call
		return nil
	}
	if err := Shut(filepath.Dir(to)); err != nil {
		return err
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		return &os.PathError{Op: "mount where pages are now", Path: from, Err: err}
	}
	return unix.Mount("", to, "", unix.MS_PRIVATE, "")
}

// mkdir makes a folder that every user may enter, whatever the umask of slurmstepd is.
func mkdir(path string) error {
	err := os.Mkdir(path, 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Chmod(path, 0o755)
}

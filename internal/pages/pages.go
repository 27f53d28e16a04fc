// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package pages makes the folder in which a job's user owns files on this node: his ledger and his
// channel groups. It is a small file system of its own: the owner of a file can make it as large as its file
// system, and root and all jobs need the one of the run directory.
package pages

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
)

const (
	// maxFiles is more than there are: the folder itself, the ledger, the groups, the time.
	maxFiles = 16
	// spareBytes is room for what the file system may take for itself.
	spareBytes = 64 << 10
	// maxMounts bounds how many mounts one folder is freed of; it has one.
	maxMounts = 8
)

// Make makes the folder of a job anew. The folder above must be root's, and the caller holds the lock. Where mounts are forbidden it is a
// plain folder, whose files may grow.
func Make(folder string) (mounted bool, err error) {
	if err := Remove(folder); err != nil {
		return false, err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return false, err
	}
	if err := os.Chmod(folder, 0o755); err != nil { // slurmd's umask must not shut others out
		return false, err
	}
	crashpoint.At("pages/folder-made")
	err = Shut(filepath.Dir(folder))
	if err == nil {
		err = mount(folder)
	}
	if isForbidden(err) {
		return false, nil
	}
	crashpoint.At("pages/mounted")
	return err == nil, err
}

func isForbidden(err error) bool {
	return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENODEV)
}

func mount(folder string) error {
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=755,uid=0,gid=0", bytesOfPages()+spareBytes, maxFiles)
	if err := unix.Mount("slurm-vgpu", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return &os.PathError{Op: "mount a tmpfs on", Path: folder, Err: err}
	}
	return nil
}

// bytesOfPages is what they take. Groups have holes where no process has any.
func bytesOfPages() (sum int64) {
	for _, size := range []int64{ledger.Bytes(), ledger.GroupsBytes(), ledger.TimeBytes()} {
		page := int64(os.Getpagesize())
		sum += (size + page - 1) / page * page
	}
	return sum
}

// Shut makes the parent of such folders a mount that passes nothing on, whatever / is on this node. A mount is made in every copy of a
// shared parent, and the kernel makes none that would bring any mount namespace over fs.mount-max: a user with copies without number would
// keep all jobs from starting (mount_namespaces(7), "MS_PRIVATE"). The caller holds the lock.
func Shut(parent string) error {
	if IsShut(parent) {
		return nil
	}
	if err := unix.Mount(parent, parent, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return &os.PathError{Op: "bind onto itself", Path: parent, Err: err}
	}
	crashpoint.At("pages/parent-bound")
	if err := unix.Mount("", parent, "", unix.MS_PRIVATE, ""); err != nil {
		return &os.PathError{Op: "keep mounts below from others", Path: parent, Err: err}
	}
	return nil
}

// IsShut says that the parent is such a mount, which it is then if it is a mount at all.
func IsShut(parent string) bool { return unix.Mount("", parent, "", unix.MS_PRIVATE, "") == nil }

// Remove takes the folder away, and the mount there. Its files are root's and empty from then on, wherever its user has them open or mounted:
// a process that could still use them would go on by the limits of a job that has ended. A folder that is not there is no error.
func Remove(folder string) error {
	for range maxMounts {
		if err := empty(folder); err != nil {
			return err
		}
		if err := unix.Unmount(folder, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			break // there is no mount, or RemoveAll says what is wrong
		}
	}
	return os.RemoveAll(folder)
}

func empty(folder string) error {
	if info, err := os.Lstat(folder); err != nil || !info.IsDir() {
		return nil
	}
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) { // what is mounted there was taken away elsewhere
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		ledger.Empty(filepath.Join(folder, entry.Name()))
	}
	return nil
}

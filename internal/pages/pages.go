// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package pages makes the folder in which a job's user owns files on this node: his ledger and his
// channel groups. It is a small file system of its own. Who owns a file can make it as large as its file
// system is, and that of the run directory is root's and everybody's.
package pages

import (
	"errors"
	"fmt"
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

// Made is how a folder came to be.
type Made struct {
	Mounted bool // not where mounts are forbidden: it is a plain folder then, whose files may grow
	Parted  bool // the folder above had to be cut off from the copies of it that are mounted elsewhere
}

// Make makes the folder of a job anew. The folder above must be root's, and whoever calls holds the lock.
func Make(folder string) (made Made, err error) {
	if err := Remove(folder); err != nil {
		return made, err
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return made, err
	}
	if err := os.Chmod(folder, 0o755); err != nil { // slurmd's umask must not shut others out
		return made, err
	}
	crashpoint.At("pages/folder-made")
	err = Share(filepath.Dir(folder))
	if err == nil {
		err = mount(folder)
	}
	if errors.Is(err, unix.ENOSPC) {
		made.Parted = true
		if err = part(filepath.Dir(folder)); err == nil {
			err = mount(folder)
		}
	}
	if isForbidden(err) {
		return made, nil
	}
	crashpoint.At("pages/mounted")
	made.Mounted = err == nil
	return made, err
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

// Share makes the parent of such folders a mount that spreads: the steps that run already see the
// claims of jobs that come later, and let go of those that went, whatever / is on this node. Whoever calls holds the lock.
func Share(parent string) error {
	if Spreads(parent) {
		return nil
	}
	if err := unix.Mount(parent, parent, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return &os.PathError{Op: "bind onto itself", Path: parent, Err: err}
	}
	crashpoint.At("pages/parent-bound")
	if err := unix.Mount("", parent, "", unix.MS_SHARED, ""); err != nil {
		return &os.PathError{Op: "share mounts below", Path: parent, Err: err}
	}
	return nil
}

// Spreads says that the parent is such a mount, which it is then if it is a mount at all.
func Spreads(parent string) bool { return unix.Mount("", parent, "", unix.MS_SHARED, "") == nil }

// part lets the parent spread to what is mounted from now on alone. A mount is made in every copy of its parent, and the kernel
// makes none that would bring any mount namespace over fs.mount-max: who has made copies without number would keep all jobs
// from starting (mount_namespaces(7), "MS_PRIVATE").
func part(parent string) error {
	if err := unix.Mount("", parent, "", unix.MS_PRIVATE, ""); err != nil {
		return &os.PathError{Op: "cut off copies of", Path: parent, Err: err}
	}
	crashpoint.At("pages/parted")
	return Share(parent)
}

// Remove takes the folder away, and what is mounted there. Its files are root's and empty from then on, wherever its user has them open or mounted:
// who could still use them would go on counting by the limits of a job that has none. A folder that is not there is none of Remove's errors.
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
	if err != nil {
		return err
	}
	for _, entry := range entries {
		ledger.Empty(filepath.Join(folder, entry.Name()))
	}
	return nil
}

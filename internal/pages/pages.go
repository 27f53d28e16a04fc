// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package pages makes the folder in which a job's user owns files on this node: his ledger and his
// claims. It is a small file system of its own. Who owns a file can make it as large as its file
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
	// maxFiles is more than there are: the folder itself, the ledger, the claims.
	maxFiles = 16
	// spareBytes is room for what the file system may take for itself.
	spareBytes = 64 << 10
	// maxMounts bounds how many mounts one folder is freed of; it has one.
	maxMounts = 8
)

// Make makes the folder of a job anew. mounted is false where mounts are forbidden; then it is a plain
// folder, whose files may grow. The folder above must be root's, and whoever calls holds the lock.
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
	err = mount(folder)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	crashpoint.At("pages/mounted")
	return err == nil, err
}

func mount(folder string) error {
	if err := share(filepath.Dir(folder)); err != nil {
		return err
	}
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=755,uid=0,gid=0", bytesOfPages()+spareBytes, maxFiles)
	if err := unix.Mount("slurm-vgpu", folder, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, options); err != nil {
		return &os.PathError{Op: "mount a tmpfs on", Path: folder, Err: err}
	}
	return nil
}

// bytesOfPages is what a ledger and claims take.
func bytesOfPages() (sum int64) {
	for _, size := range []int64{ledger.Bytes(), ledger.ClaimsBytes()} {
		page := int64(os.Getpagesize())
		sum += (size + page - 1) / page * page
	}
	return sum
}

// share makes the parent of such folders a mount that spreads: the steps that run already see the
// claims of jobs that come later, and let go of those that went, whatever / is on this node.
func share(parent string) error {
	err := unix.Mount("", parent, "", unix.MS_SHARED, "")
	if errors.Is(err, unix.EINVAL) { // not a mount yet
		if err := unix.Mount(parent, parent, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return &os.PathError{Op: "bind onto itself", Path: parent, Err: err}
		}
		crashpoint.At("pages/parent-bound")
		err = unix.Mount("", parent, "", unix.MS_SHARED, "")
	}
	if err != nil {
		return &os.PathError{Op: "share mounts below", Path: parent, Err: err}
	}
	return nil
}

// Remove takes the folder away, and what is mounted there. A process that has a file of it open keeps
// no more than that small file system. A folder that is not there is none of its errors.
func Remove(folder string) error {
	for range maxMounts {
		if err := unix.Unmount(folder, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			break // there is no mount, or RemoveAll says what is wrong
		}
	}
	if info, err := os.Lstat(folder); err == nil && info.IsDir() {
		entries, err := os.ReadDir(folder)
		if err != nil {
			return err
		}
		for _, entry := range entries {
			ledger.Empty(filepath.Join(folder, entry.Name()))
		}
	}
	return os.RemoveAll(folder)
}

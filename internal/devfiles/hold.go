// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package devfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Hold keeps closed files closed. Not nvidia-modprobe alone opens them: every program of root's that starts NVML or CUDA gives the files
// their modes of NVreg_DeviceFileMode (seen with driver 580.159). So a closed file of the same device, from the folder of the steps'
// files, is mounted read-only over each: no program can change or remove it by its name, and the driver works without (seen with the same).
// Nothing may be mounted below /proc for this: in a user namespace the kernel then refuses to mount a /proc (mount_too_revealing), so
// that no rootless container started. The mounts are in the caller's mount namespace, and in those made from it.
func (s Set) Hold() error {
	minors, err := s.minors()
	if err != nil {
		return err
	}
	var errs []error
	for _, minor := range minors {
		if !slices.Contains(s.Leave, minor) {
			errs = append(errs, s.hold(minor))
		}
	}
	return errors.Join(errs...)
}

func (s Set) hold(minor int) error {
	path, cover := s.path(minor), s.cover(minor)
	if s.isCovered(minor) {
		return nil
	}
	below, err := lstat(path)
	if err != nil {
		return err
	}
	if err := os.Remove(cover); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := mknod(cover, below.Rdev); err != nil {
		return err
	}
	if err := own(cover, below.Gid, below.Mode&0o7777); err != nil {
		return err
	}
	if err := unix.Mount(cover, path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", cover, path, err)
	}
	const flags = unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | unix.MS_NOSUID | unix.MS_NOEXEC
	if err := unix.Mount("", path, "", flags, ""); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}

// letGo takes away what Hold has mounted over a file, and nothing else.
func (s Set) letGo(minor int) error {
	for s.isCovered(minor) {
		if err := unix.Unmount(s.path(minor), unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return &os.PathError{Op: "unmount", Path: s.path(minor), Err: err}
		}
	}
	if err := os.Remove(s.cover(minor)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (s Set) cover(minor int) string {
	return filepath.Join(s.StepDir, "closed-nvidia"+strconv.Itoa(minor))
}

func (s Set) isCovered(minor int) bool {
	over, err := lstat(s.path(minor))
	cover, coverErr := lstat(s.cover(minor))
	return err == nil && coverErr == nil && over.Dev == cover.Dev && over.Ino == cover.Ino
}

// isHeld says whether a mount keeps a file from being changed, to everybody who asks.
func isHeld(path string) bool {
	var of unix.Statfs_t
	return unix.Statfs(path, &of) == nil && of.Flags&unix.ST_RDONLY != 0
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// enterDev gives the namespace a /dev of its own with what is in the host's, so that what the plugin makes there
// is nobody else's.
func enterDev(folder string) error {
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("vgpu-cluster", folder, "tmpfs", unix.MS_NOSUID, "mode=0755"); err != nil {
		return fmt.Errorf("mount a tmpfs on %s: %w", folder, err)
	}
	entries, err := os.ReadDir("/dev")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == "slurm-vgpu" {
			continue
		}
		if err := copyDev(filepath.Join("/dev", entry.Name()), filepath.Join(folder, entry.Name())); err != nil {
			return err
		}
	}
	if err := unix.Mount(folder, "/dev", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s on /dev: %w", folder, err)
	}
	return nil
}

// copyDev makes a node again, and mounts what is none.
func copyDev(from, to string) error {
	var st unix.Stat_t
	if err := unix.Lstat(from, &st); err != nil {
		if errors.Is(err, unix.ENOENT) { // gone since it was listed
			return nil
		}
		return &os.PathError{Op: "stat", Path: from, Err: err}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFLNK:
		target, err := os.Readlink(from)
		if err != nil {
			return err
		}
		return os.Symlink(target, to)
	case unix.S_IFCHR, unix.S_IFBLK:
		err := unix.Mknod(to, st.Mode, int(st.Rdev))
		if err == nil {
			return errors.Join(unix.Chmod(to, st.Mode&0o7777), unix.Chown(to, int(st.Uid), int(st.Gid)))
		}
		if !errors.Is(err, unix.EPERM) {
			return &os.PathError{Op: "make a device", Path: to, Err: err}
		}
	case unix.S_IFDIR:
		if err := os.Mkdir(to, 0o755); err != nil {
			return err
		}
		return bindDev(from, to)
	}
	if err := os.WriteFile(to, nil, 0o644); err != nil {
		return err
	}
	return bindDev(from, to)
}

func bindDev(from, to string) error {
	if err := unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind %s on %s: %w", from, to, err)
	}
	return nil
}

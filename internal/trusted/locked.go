// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package trusted

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// IsLocked says whether somebody has a lock file locked; nobody has one that is not there. Who wants the lock meanwhile has to wait for a moment.
func IsLocked(path string) (bool, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "open lock", Path: path, Err: err}
	}
	defer unix.Close(fd)
	err = unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("try lock %s: %w", path, err)
	}
	return false, nil
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

const stepsLockWait = 5 * time.Second

// LockSteps serialises the ends of a job's steps, and the starts of those that look at each other.
// Waiting is bounded, because slurmstepd waits too.
func LockSteps(dir rundir.Dir, job uint32) (unlock func(), err error) {
	path := dir.StepsLock(job)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	for deadline := time.Now().Add(stepsLockWait); ; time.Sleep(2 * time.Millisecond) {
		err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) || time.Now().After(deadline) {
			unix.Close(fd)
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
	}
}

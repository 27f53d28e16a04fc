// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// LockFile takes a lock file until the context ends. The file is never removed: a new inode would
// not exclude those who hold the old one. A process that dies gives its lock back with its descriptors.
func LockFile(ctx context.Context, path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRunDir, &os.PathError{Op: "open lock", Path: path, Err: err})
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, fmt.Errorf("%w: lock %s is not a regular file", ErrRunDir, path)
	}
	held := os.NewFile(uintptr(fd), path)
	err = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return held, nil
	}
	if ctx.Err() != nil { // nobody is left behind who would have the lock for a moment
		held.Close()
		return nil, fmt.Errorf("lock %s: %w: %w", path, ErrLockTimeout, ctx.Err())
	}
	// A blocking flock queues fairly in the kernel, which polling does not: with 200 prologs at once
	// somebody would starve. The goroutine of one that gave up ends when the lock comes, and lets go.
	got := make(chan error, 1)
	go func() {
		for {
			if err := unix.Flock(fd, unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				got <- err
				return
			}
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			held.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		return held, nil
	case <-ctx.Done():
		go func() { <-got; held.Close() }() //nolint:errcheck // whether it got the lock or not
		return nil, fmt.Errorf("lock %s: %w: %w", path, ErrLockTimeout, ctx.Err())
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package trusted

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// ErrLocked means that others held the lock for all the time that we were ready to wait.
var ErrLocked = errors.New("it is locked by another process")

// Lock takes a lock file until the context ends. The file is never removed: a new inode would
// not exclude those who hold the old one. A process that dies gives its lock back with its descriptors.
func Lock(ctx context.Context, path string) (*os.File, error) {
	held, err := openLock(path, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	taken, err := tryLock(held, unix.LOCK_EX)
	if taken {
		return held, nil
	}
	if err == nil && ctx.Err() != nil { // nobody is left behind who would have the lock for a moment
		err = fmt.Errorf("lock %s: %w: %w", path, ErrLocked, ctx.Err())
	}
	if err != nil {
		held.Close()
		return nil, err
	}
	// A blocking flock queues fairly in the kernel, which polling does not: with 200 prologs at once
	// somebody would starve. The goroutine of one that gave up ends when the lock comes, and lets go.
	got := make(chan error, 1)
	fd := int(held.Fd())
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
		return nil, fmt.Errorf("lock %s: %w: %w", path, ErrLocked, ctx.Err())
	}
}

// TryLock takes a lock file that is free. It is nil where another process has it.
func TryLock(path string) (*os.File, error) {
	held, err := openLock(path, unix.O_RDWR|unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	if taken, err := tryLock(held, unix.LOCK_EX); !taken {
		held.Close()
		return nil, err
	}
	return held, nil
}

// IsLocked says whether a process has a lock file locked; a file that is not there is not locked. Another process that wants the lock meanwhile
// has to wait for a moment.
func IsLocked(path string) (bool, error) {
	file, err := openLock(path, unix.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	taken, err := tryLock(file, unix.LOCK_SH)
	return err == nil && !taken, err
}

func openLock(path string, flags int) (*os.File, error) {
	fd, err := unix.Open(path, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, &os.PathError{Op: "open lock", Path: path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		unix.Close(fd)
		return nil, fmt.Errorf("lock %s is not a regular file", path)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// tryLock does not wait: another that has the lock is no error.
func tryLock(file *os.File, how int) (taken bool, err error) {
	err = unix.Flock(int(file.Fd()), how|unix.LOCK_NB)
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) {
		return err == nil, nil
	}
	return false, fmt.Errorf("lock %s: %w", file.Name(), err)
}

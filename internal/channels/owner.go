// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Owner is a process that has channel groups. It is held by a pidfd, which keeps nothing of it, so that its number cannot become another's
// unnoticed: a caller that opens an Owner and then looks at the process by its number has looked at this one, if it has not Ended afterwards.
//
// Each call copies a descriptor of the process for itself and closes the copy before it returns, as a copy keeps all memory of a killed process.
type Owner struct {
	pid, pidfd int
	driver     identity
}

// Owner finds a process by its number, as this program counts processes.
func (d *Driver) Owner(pid int) (*Owner, error) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("open process %d: %w", pid, because(err))
	}
	return &Owner{pid: pid, pidfd: pidfd, driver: d.is}, nil
}

// Close forgets the process.
func (o *Owner) Close() { unix.Close(o.pidfd) }

// Ended says that the process has.
func (o *Owner) Ended() bool {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(o.pidfd), Events: unix.POLLIN}}, 0)
		if !errors.Is(err, unix.EINTR) {
			return n > 0
		}
	}
}

// HasEnded says that no process of this number is at work: it is gone, or is a zombie.
func HasEnded(pid int) bool {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH)
	}
	o := Owner{pid: pid, pidfd: pidfd}
	defer o.Close()
	return o.Ended()
}

// mostDescriptors are looked at of one process.
const mostDescriptors = 1 << 16

// Descriptors are those of a process that are of the control device at a path. It stops at the given time: a user can have as many as he likes.
func Descriptors(controlPath string, pid int, until time.Time) (found []int) {
	control, err := identify(unix.AT_FDCWD, controlPath)
	if err != nil {
		return nil
	}
	folder, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		return nil
	}
	defer folder.Close()
	for seen := 0; seen < mostDescriptors && time.Now().Before(until); {
		names, err := folder.Readdirnames(1024)
		for _, name := range names {
			if is, err := identify(int(folder.Fd()), name); err != nil || is != control {
				continue
			}
			if fd, err := strconv.Atoi(name); err == nil {
				found = append(found, fd)
			}
		}
		if err != nil {
			break
		}
		seen += len(names)
	}
	return found
}

// SetTimeSlice is File.SetTimeSlice as the process.
func (o *Owner) SetTimeSlice(g Group, slice time.Duration) error {
	return o.as(g.FD, func(f File) error { return f.SetTimeSlice(g, slice) })
}

// Slice is File.Slice as the process.
func (o *Owner) Slice(g Group) (slice time.Duration, err error) {
	err = o.as(g.FD, func(f File) (err error) { slice, err = f.Slice(g); return err })
	return slice, err
}

// Saves is File.Saves as the process.
func (o *Owner) Saves(g Group) (saves Saves, err error) {
	err = o.as(g.FD, func(f File) (err error) { saves, err = f.Saves(g); return err })
	return saves, err
}

// Verify says whether the group is the process's: the driver takes the call only through the open file that made the group's client. Then all
// channels of that client are the process's too. A client's number can come back as another's once the process has closed it, and the driver
// counts through a million before: what was verified is good for this look, not for the next.
func (o *Owner) Verify(g Group) error {
	_, err := o.Slice(g)
	return err
}

// as makes a call through a copy of the process's descriptor.
func (o *Owner) as(theirs int, call func(File) error) error {
	if err := o.through(theirs, call); err != nil {
		return fmt.Errorf("process %d: %w", o.pid, err)
	}
	return nil
}

func (o *Owner) through(theirs int, call func(File) error) error {
	// Looked at before it is copied: to close a copy of a file in a user's own file system (FUSE) waits for him, without end.
	if err := o.check(unix.AT_FDCWD, fmt.Sprintf("/proc/%d/fd/%d", o.pid, theirs), theirs); err != nil {
		return err
	}
	copied, err := o.copy(theirs)
	if err != nil {
		return err
	}
	defer unix.Close(copied)
	return call(File(copied))
}

// copy looks again: it may have been changed meanwhile, which no honest program does, and then nobody waits for the end of the copy.
func (o *Owner) copy(theirs int) (int, error) {
	copied, err := unix.PidfdGetfd(o.pidfd, theirs, 0)
	if err != nil {
		return -1, o.failed("copy", theirs, err)
	}
	if err := o.check(copied, "", theirs); err != nil {
		go unix.Close(copied)
		return -1, err
	}
	return copied, nil
}

// check says whether a descriptor of the process's is of the driver's control device.
func (o *Owner) check(at int, path string, theirs int) error {
	is, err := identify(at, path)
	if err != nil {
		return o.failed("look at", theirs, err)
	}
	if is != o.driver {
		return fmt.Errorf("descriptor %d is of another file: %w", theirs, ErrNotTheirs)
	}
	return nil
}

// failed says why a descriptor cannot be had.
func (o *Owner) failed(doing string, theirs int, err error) error {
	switch {
	case o.Ended():
		err = ErrGone
	case errors.Is(err, unix.EBADF), errors.Is(err, unix.ENOENT):
		err = ErrNotTheirs
	default:
		err = because(err)
	}
	return fmt.Errorf("%s descriptor %d: %w", doing, theirs, err)
}

// because gives the kernel's errors the names that callers know.
func because(err error) error {
	switch {
	case errors.Is(err, unix.ESRCH):
		return ErrGone
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return ErrForbidden
	case errors.Is(err, unix.ENOSYS):
		return ErrNoCopies
	}
	return err
}

// identity is which device a file is of, or, for one that is no device, which file system.
type identity struct {
	device       bool
	major, minor uint32
}

// identify asks the kernel alone, never the file system, which may be a user's own.
func identify(at int, path string) (identity, error) {
	flags := unix.AT_STATX_DONT_SYNC
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	}
	var is unix.Statx_t
	if err := unix.Statx(at, path, flags, unix.STATX_TYPE, &is); err != nil {
		return identity{}, err
	}
	if is.Mode&unix.S_IFMT == unix.S_IFCHR {
		return identity{true, is.Rdev_major, is.Rdev_minor}, nil
	}
	return identity{false, is.Dev_major, is.Dev_minor}, nil
}

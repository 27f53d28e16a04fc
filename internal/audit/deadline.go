// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// event is struct sigevent of Linux (timer_create(2)): 64 bytes, of which these are used.
type event struct {
	_      uintptr
	signal int32
	notify int32 // 0: SIGEV_SIGNAL
	_      [12]int32
}

// deadline has the kernel end this process after so long; disarm takes it back. Somebody who hangs in dlopen holds the
// dynamic linker's lock, without which no thread can be made (glibc, allocate_stack), so that not even the one
// that would give up may run.
func deadline(after time.Duration) (disarm func(), err error) {
	var id int32
	killed := event{signal: int32(unix.SIGKILL)}
	if _, _, errno := unix.Syscall(unix.SYS_TIMER_CREATE, unix.CLOCK_MONOTONIC, uintptr(unsafe.Pointer(&killed)), uintptr(unsafe.Pointer(&id))); errno != 0 {
		return nil, fmt.Errorf("bound what NVML may take: timer_create: %w", errno)
	}
	at := struct{ interval, value unix.Timespec }{value: unix.NsecToTimespec(int64(after))}
	if _, _, errno := unix.Syscall6(unix.SYS_TIMER_SETTIME, uintptr(id), 0, uintptr(unsafe.Pointer(&at)), 0, 0, 0); errno != 0 {
		return nil, fmt.Errorf("bound what NVML may take: timer_settime: %w", errno)
	}
	return func() { unix.Syscall(unix.SYS_TIMER_DELETE, uintptr(id), 0, 0) }, nil //nolint:errcheck // it is there
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"runtime"
	"syscall"
	"unsafe"
)

// escape makes a call of the driver's ioctl; the argument's status is the driver's own answer.
func escape[T any](fd int, number uintptr, arg *T) syscall.Errno {
	const readAndWrite = 3
	request := uintptr(readAndWrite)<<30 | unsafe.Sizeof(*arg)<<16 | 'F'<<8 | number
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(arg)))
	return errno
}

// control gives the driver's status, or -errno. What is nil has no parameters.
func control[T any](fd int, client, object, command uint32, params *T) int {
	arg := controlArg{client: client, object: object, command: command}
	var pinned runtime.Pinner // the driver has its address as a number, which Go does not follow
	defer pinned.Unpin()
	if params != nil {
		pinned.Pin(params)
		arg.params, arg.paramsBytes = uint64(uintptr(unsafe.Pointer(params))), uint32(unsafe.Sizeof(*params))
	}
	if errno := escape(fd, escapeControl, &arg); errno != 0 {
		return -int(errno)
	}
	return int(arg.status)
}

// alloc makes an object of a client, or a client; the driver names it.
func alloc[T any](fd int, client, parent, class uint32, params *T) (object uint32, status int) {
	arg := allocArg{client: client, parent: parent, class: class}
	var pinned runtime.Pinner
	defer pinned.Unpin()
	if params != nil {
		// A newer driver reads more than an older header says.
		padded := &struct {
			params T
			_      [512]byte
		}{params: *params}
		pinned.Pin(padded)
		arg.params = uint64(uintptr(unsafe.Pointer(padded)))
	}
	if errno := escape(fd, escapeAlloc, &arg); errno != 0 {
		return 0, -int(errno)
	}
	return arg.object, int(arg.status)
}

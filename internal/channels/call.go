// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// File is a descriptor of the driver's control device. The driver takes a client's calls only through the open file that made the client.
type File int

// Status is the driver's own answer to a call, where it is not 0 (nvstatuscodes.h).
type Status uint32

func (s Status) Error() string { return fmt.Sprintf("the driver's status is %#x", uint32(s)) }

// Is says that the handles are of nothing that the open file has, or not any more.
func (s Status) Is(target error) bool {
	switch s {
	// NV_ERR_INVALID_ CHANNEL, CLIENT, OBJECT, OBJECT_HANDLE; NV_ERR_OBJECT_NOT_FOUND
	case 0x21, 0x23, 0x31, 0x33, 0x57:
		return target == ErrNotTheirs
	}
	return false
}

// escape makes a call of the driver's ioctl; the argument has the driver's own answer.
func escape[T any](f File, number uintptr, arg *T) error {
	const readAndWrite = 3
	request := uintptr(readAndWrite)<<30 | unsafe.Sizeof(*arg)<<16 | 'F'<<8 | number
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(f), request, uintptr(unsafe.Pointer(arg)))
		if errno == unix.EINTR { // Go's own signals
			continue
		}
		if errno != 0 {
			return errno
		}
		return nil
	}
}

// Control makes a control call on an object of a client's. A call without parameters has nil.
func Control[T any](f File, client, object, command uint32, params *T) error {
	arg := controlArg{client: client, object: object, command: command}
	var pinned runtime.Pinner // the driver has its address as a number, which Go does not follow
	defer pinned.Unpin()
	if params != nil {
		pinned.Pin(params)
		arg.params, arg.paramsBytes = uint64(uintptr(unsafe.Pointer(params))), uint32(unsafe.Sizeof(*params))
	}
	return answer(escape(f, escapeControl, &arg), arg.status)
}

// alloc makes an object of a client, or a client; the driver names it.
func alloc[T any](f File, client, parent, class uint32, params *T) (object uint32, err error) {
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
	if err := answer(escape(f, escapeAlloc, &arg), arg.status); err != nil {
		return 0, err
	}
	return arg.object, nil
}

func answer(err error, status uint32) error {
	if err == nil && status != 0 {
		return Status(status)
	}
	return err
}

// Channel is one of a client's, by the driver's handles.
type Channel struct{ Client, Handle uint32 }

// Disable takes channels off the GPU, or lets them on again, in one call; at most MostChannels. The driver compares no owner here: it has to be known whose they are.
func (f File) Disable(client, subdevice uint32, disable bool, channels []Channel) error {
	params, err := disabling(disable, channels)
	if err != nil {
		return err
	}
	if err := Control(f, client, subdevice, callDisable, params); err != nil {
		return fmt.Errorf("disable %d channels (%t): %w", len(channels), disable, err)
	}
	return nil
}

func disabling(disable bool, channels []Channel) (*disableParams, error) {
	params := &disableParams{count: uint32(len(channels))}
	if len(channels) == 0 || len(channels) > MostChannels {
		return nil, fmt.Errorf("disable %d channels in one call: there can be 1 to %d", len(channels), MostChannels)
	}
	if disable {
		params.disable = 1
	}
	for i, c := range channels {
		params.clients[i], params.channels[i] = c.Client, c.Handle
	}
	return params, nil
}

// Group is a channel group of a process's, by the driver's handles, with the subdevice of its GPU.
type Group struct {
	FD                        int // of the process: the open file that made the client
	Client, Subdevice, Handle uint32
}

// longestSlice is what anybody may be given; the driver itself takes any number.
const longestSlice = time.Second

// SetTimeSlice says for how long a group is on before others that have work come on. The driver has it in whole microseconds.
func (f File) SetTimeSlice(g Group, slice time.Duration) error {
	if slice < time.Microsecond || slice > longestSlice {
		return fmt.Errorf("set a slice of %s: it can be 1us to %s", slice, longestSlice)
	}
	if err := Control(f, g.Client, g.Handle, callSetTimeSlice, &sliceParams{uint64(slice / time.Microsecond)}); err != nil {
		return fmt.Errorf("set the slice of group %#x of client %#x to %s: %w", g.Handle, g.Client, slice, err)
	}
	return nil
}

// Slice is the time slice that a program set last: the GPU may have rounded it.
func (f File) Slice(g Group) (time.Duration, error) {
	var params sliceParams
	if err := Control(f, g.Client, g.Handle, callSlice, &params); err != nil {
		return 0, fmt.Errorf("ask for the slice of group %#x of client %#x: %w", g.Handle, g.Client, err)
	}
	return time.Duration(min(params.us, uint64(time.Hour/time.Microsecond))) * time.Microsecond, nil // its owner may have asked for anything
}

// Saves counts how often a group left the GPU, and how.
type Saves struct {
	Saves, Restores uint32
	Idle            uint32 // when its kernels had ended
	Blocks          uint32 // between blocks
	InKernel        uint32 // in a kernel
}

// Saves asks for them since the group was made.
func (f File) Saves(g Group) (Saves, error) {
	params := savesParams{group: g.Handle}
	if err := Control(f, g.Client, g.Subdevice, callSaves, &params); err != nil {
		return Saves{}, fmt.Errorf("ask how group %#x of client %#x was saved: %w", g.Handle, g.Client, err)
	}
	return Saves{params.saves, params.restores, params.idle, params.blocks, params.instructions}, nil
}

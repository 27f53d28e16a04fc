// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "golang.org/x/sys/unix"

// Numbers of the calls, of type 'F' as the driver's (nv_escape.h), and of type 'S' for the simulated libraries.
const (
	escapeFree      = 0x29
	escapeControl   = 0x2A
	escapeAlloc     = 0x2B
	escapeMap       = 0x4E
	escapeByAddress = 211 // number, bytes, address

	simSubmit = 1
	simWait   = 2
	simBucket = 3
	simActive = 4
	simWhere  = 5
)

// Statuses (nvstatuscodes.h).
const (
	statusOK            = 0
	statusNoResources   = 0x1a
	statusNoPermission  = 0x1b
	statusBadAddress    = 0x1e
	statusBadArgument   = 0x1f
	statusBadChannel    = 0x21
	statusBadClass      = 0x22
	statusBadClient     = 0x23
	statusBadDevice     = 0x26
	statusBadHandle     = 0x33
	statusBadParent     = 0x36
	statusBadParams     = 0x3a
	statusBadState      = 0x40
	statusNotSupported  = 0x56
	statusNoSuchObject  = 0x57
	statusAlreadyExists = 0x19
)

// ioctl answers one call; fuse_ioctl_in.
func (d *driver) ioctl(q *request) {
	const headBytes = 32
	if len(q.body) < headBytes {
		q.fail(unix.EINVAL)
		return
	}
	file, number := le.Uint64(q.body), le.Uint32(q.body[12:])
	argument := make([]byte, number>>16&0x3fff)
	copy(argument, q.body[headBytes:])
	switch number >> 8 & 0xff {
	case 'F':
		d.escape(q, file, number&0xff, argument)
	case 'S':
		d.simulated(q, file, number&0xff, argument)
	default:
		q.fail(unix.ENOTTY)
	}
}

// escape is a call of the driver's; one by address has its argument elsewhere.
func (d *driver) escape(q *request, file uint64, number uint32, argument []byte) {
	if number != escapeByAddress {
		if !d.call(q, file, number, argument) {
			q.fail(unix.EINVAL)
			return
		}
		q.answer(answered(0, argument))
		return
	}
	if len(argument) < 16 || le.Uint32(argument[4:]) > mostParamBytes {
		q.fail(unix.EINVAL)
		return
	}
	address := le.Uint64(argument[8:])
	inner, ok := readMemory(q.tid, address, int(le.Uint32(argument[4:])))
	if !ok {
		q.fail(unix.EFAULT)
		return
	}
	if !d.call(q, file, le.Uint32(argument), inner) || !writeMemory(q.tid, address, inner) {
		q.fail(unix.EINVAL)
		return
	}
	q.answer(answered(0, argument))
}

// call changes its argument, the status in it included; false: there is no such call.
func (d *driver) call(q *request, file uint64, number uint32, argument []byte) bool {
	switch {
	case number == escapeAlloc && len(argument) == 32: // NVOS21_PARAMETERS
		le.PutUint32(argument[28:], d.alloc(q, file, argument, le.Uint32(argument[24:])))
	case number == escapeAlloc && len(argument) == 48: // NVOS64_PARAMETERS
		le.PutUint32(argument[40:], d.alloc(q, file, argument, le.Uint32(argument[32:])))
	case number == escapeFree && len(argument) == 16: // NVOS00_PARAMETERS
		le.PutUint32(argument[12:], d.free(file, le.Uint32(argument), le.Uint32(argument[8:])))
	case number == escapeControl && len(argument) == 32: // NVOS54_PARAMETERS
		le.PutUint32(argument[28:], d.control(q, file, argument))
	case number == escapeMap && len(argument) == 56: // NVOS33_PARAMETERS with a descriptor
		le.PutUint32(argument[40:], d.mapMemory(q, file, argument))
	default:
		return false
	}
	return true
}

func (d *driver) free(file uint64, client, handle uint32) uint32 {
	d.enter()
	defer d.leave()
	c := d.owned(file, client)
	switch {
	case c == nil:
		return statusBadClient
	case handle == client:
		d.freeClient(c)
	case c.objects[handle] == nil:
		return statusNoSuchObject
	default:
		d.freeObject(c, handle)
	}
	return statusOK
}

// mapMemory lets another descriptor's pages show a memory.
func (d *driver) mapMemory(q *request, file uint64, argument []byte) uint32 {
	const readOnly = 1
	d.enter()
	defer d.leave()
	c := d.owned(file, le.Uint32(argument))
	if c == nil {
		return statusBadClient
	}
	o := c.objects[le.Uint32(argument[8:])]
	if o == nil {
		return statusNoSuchObject
	}
	m, ok := o.what.(*memory)
	flags, node := le.Uint32(argument[44:]), nodeOf(q.tid, int32(le.Uint32(argument[48:])))
	switch {
	case !ok:
		return statusBadHandle
	case m.readOnly && flags&3 != readOnly, le.Uint64(argument[16:]) != 0, le.Uint64(argument[24:]) > uint64(len(m.bytes)):
		return statusBadArgument
	case !d.files.show(node, m):
		return statusBadState
	}
	return statusOK
}

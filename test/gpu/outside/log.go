// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// switchLog reads a GPU's log of context switches, as nsys does: a client of the driver with a buffer of records that the driver fills.
type switchLog struct {
	*turns
	ctl, device               int // descriptors
	client, subdevice, buffer uint32
	header                    []byte // NV_EVENT_BUFFER_HEADER
	ring                      []byte
	ringRecords, get          uint32
}

func mustBeOK(status int, what string) {
	if status != 0 {
		panic(fmt.Errorf("%s: status %#x", what, status))
	}
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

const headerBytes = 4096

func openLog(g *gpu) *switchLog {
	l := &switchLog{turns: newTurns()}
	l.ctl = must(unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0))
	l.device = must(unix.Open(fmt.Sprintf("/dev/nvidia%d", g.minor), unix.O_RDWR|unix.O_CLOEXEC, 0))
	var status int
	l.client, status = alloc[struct{}](l.ctl, 0, 0, classClient, nil)
	mustBeOK(status, "make a client")
	device, status := alloc(l.ctl, l.client, l.client, classDevice, &deviceParams{instance: must(g.instance(l.ctl, l.client))})
	mustBeOK(status, "make a device")
	l.subdevice, status = alloc(l.ctl, l.client, device, classSubdevice, &subdeviceParams{})
	mustBeOK(status, "make a subdevice")
	header, status := l.memory(headerBytes)
	mustBeOK(status, "take memory for the header")
	var records uint32
	for _, l.ringRecords = range []uint32{32768, 8192, 1024} { // memory in one piece, which may be short
		if records, status = l.memory(uint64(l.ringRecords) * recordBytes); status == 0 {
			break
		}
	}
	mustBeOK(status, "take memory for the records")
	l.buffer, status = alloc(l.ctl, l.client, l.client, classEventBuffer, &eventBufferParams{
		recordBytes: recordBytes, recordCount: l.ringRecords, subdevice: l.subdevice, header: header, records: records})
	mustBeOK(status, "make an event buffer")
	l.header, l.ring = l.mapped(header, headerBytes), l.mapped(records, uint64(l.ringRecords)*recordBytes)
	mustBeOK(control(l.ctl, l.client, l.buffer, callEnableEvents, &enableParams{enable: 1, flags: keepOldest}), "enable the buffer")
	mustBeOK(control(l.ctl, l.client, l.subdevice, callBind,
		&bindParams{buffer: l.buffer, recordBytes: recordBytes, detail: 1, allUsers: 1}), "bind the buffer to the switches")
	l.beganNS = l.clockNS()
	return l
}

// memory is the driver's, which wants a buffer's to be read only for its user.
func (l *switchLog) memory(bytes uint64) (object uint32, status int) {
	return alloc(l.ctl, l.client, l.client, classMemory,
		&memoryParams{owner: memoryOwner, attr: memoryCached, attr2: memoryReadOnly, bytes: bytes})
}

// mapped shows memory of the driver's here. A mapping takes a descriptor of its own.
func (l *switchLog) mapped(memory uint32, bytes uint64) []byte {
	fd := must(unix.Open("/dev/nvidiactl", unix.O_RDWR|unix.O_CLOEXEC, 0))
	defer unix.Close(fd)
	arg := mapArg{client: l.client, device: l.client, memory: memory, bytes: bytes, flags: mapReadOnly, fd: int32(fd)}
	if errno := escape(l.ctl, escapeMap, &arg); errno != 0 || arg.status != 0 {
		panic(fmt.Errorf("map the buffer: %v, status %#x", errno, arg.status))
	}
	return must(unix.Mmap(fd, 0, int(bytes), unix.PROT_READ, unix.MAP_SHARED))
}

func (l *switchLog) close() {
	unix.Munmap(l.header)
	unix.Munmap(l.ring)
	unix.Close(l.device)
	unix.Close(l.ctl)
}

// clockNS is the GPU's clock, that of the records.
func (l *switchLog) clockNS() int64 {
	var now timeParams
	control(l.ctl, l.client, l.subdevice, callTime, &now)
	return int64(now.ns)
}

// poll takes what is new. With flush the driver reads the GPU's own ring at once, otherwise it does when it likes.
func (l *switchLog) poll(flush bool) {
	if flush {
		control[struct{}](l.ctl, l.client, l.buffer, callFlush, nil)
	}
	put := le.Uint32(l.header[4:])
	l.dropped += int(le.Uint64(l.header[16:])) // the driver clears it at UPDATE_GET
	for l.get != put && put < l.ringRecords {
		l.take(parseRecord(l.ring[recordBytes*l.get:]))
		l.get = (l.get + 1) % l.ringRecords
	}
	control(l.ctl, l.client, l.buffer, callUpdateGet, &updateGetParams{records: l.get})
}

// disable does it, or enables, as the client of this log: the driver compares no owner in this call.
func (l *switchLog) disable(disable bool, channels []handle) int {
	return control(l.ctl, l.client, l.subdevice, callDisable, disabling(disable, channels))
}

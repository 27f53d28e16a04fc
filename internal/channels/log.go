// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package channels

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Log reads a GPU's log of context switches, as nsys does: a client of the driver with a buffer of records that the driver fills. It has no record
// of a process that is alone.
type Log struct {
	client
	subdevice, buffer uint32
	header, ring      []byte // of the driver, for reading
	ringRecords, get  uint32
	records           []Record
}

const headerBytes = 4096

// Places in NV_EVENT_BUFFER_HEADER.
const (
	atPut     = 4
	atDropped = 16
)

// OpenLog begins to read it.
func (g *GPU) OpenLog() (*Log, error) {
	l := &Log{}
	var err error
	if l.client, l.subdevice, err = g.driver.subdeviceOf(g.instance); err != nil {
		return nil, err
	}
	if err := l.start(g.driver.path); err != nil {
		l.Close()
		return nil, fmt.Errorf("open the log of context switches: %w", err)
	}
	return l, nil
}

func (l *Log) start(controlPath string) error {
	header, err := l.memory(headerBytes)
	if err != nil {
		return err
	}
	var records uint32
	for _, l.ringRecords = range []uint32{32768, 8192, 1024} { // memory in one piece, which may be short
		if records, err = l.memory(uint64(l.ringRecords) * recordBytes); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	if l.buffer, err = alloc(l.file, l.handle, l.handle, classEventBuffer, &eventBufferParams{
		recordBytes: recordBytes, recordCount: l.ringRecords, subdevice: l.subdevice, header: header, records: records}); err != nil {
		return fmt.Errorf("make an event buffer: %w", err)
	}
	if l.header, err = l.mapped(controlPath, header, headerBytes); err != nil {
		return err
	}
	if l.ring, err = l.mapped(controlPath, records, uint64(l.ringRecords)*recordBytes); err != nil {
		return err
	}
	if err := Control(l.file, l.handle, l.buffer, callEnableEvents, &enableParams{enable: 1, flags: keepOldest}); err != nil {
		return fmt.Errorf("enable the event buffer: %w", err)
	}
	bind := bindParams{buffer: l.buffer, recordBytes: recordBytes, detail: 1, allUsers: 1}
	if err := Control(l.file, l.handle, l.subdevice, callBind, &bind); err != nil {
		return fmt.Errorf("bind the event buffer to the switches (reason %d): %w", bind.reason, err)
	}
	return nil
}

// memory is the driver's, which wants a buffer's to be read only for its user.
func (l *Log) memory(bytes uint64) (object uint32, err error) {
	object, err = alloc(l.file, l.handle, l.handle, classMemory,
		&memoryParams{owner: memoryOwner, attr: memoryCached, attr2: memoryReadOnly, bytes: bytes})
	if err != nil {
		return 0, fmt.Errorf("take %d bytes of the driver's memory: %w", bytes, err)
	}
	return object, nil
}

// mapped shows memory of the driver's here. A mapping takes a descriptor of its own.
func (l *Log) mapped(controlPath string, memory uint32, bytes uint64) ([]byte, error) {
	fd, err := openFile(controlPath)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	arg := mapArg{client: l.handle, device: l.handle, memory: memory, bytes: bytes, flags: mapReadOnly, fd: int32(fd)}
	err = escape(l.file, escapeMap, &arg)
	if err := answer(err, arg.status); err != nil {
		return nil, fmt.Errorf("have the driver map %d bytes: %w", bytes, err)
	}
	mapped, err := unix.Mmap(fd, 0, int(bytes), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of the driver's memory: %w", bytes, err)
	}
	return mapped, nil
}

// Close ends it.
func (l *Log) Close() {
	for _, mapped := range [][]byte{l.header, l.ring} {
		if mapped != nil {
			_ = unix.Munmap(mapped) // it was mapped as it is
		}
	}
	l.close()
}

// Poll gives what is new, oldest first, and how many records the driver dropped since the last look because there was no room; the records are
// good until the next call. With flush the driver reads the GPU's own ring at once, otherwise it does when it likes: 30 times a second, up to 535 once.
func (l *Log) Poll(flush bool) (records []Record, dropped uint64, err error) {
	if flush {
		if err := Control[struct{}](l.file, l.handle, l.buffer, callFlush, nil); err != nil {
			return nil, 0, fmt.Errorf("have the driver read the switches: %w", err)
		}
	}
	put := atomic.LoadUint32((*uint32)(unsafe.Pointer(&l.header[atPut]))) // before the records, which the driver writes first
	if put >= l.ringRecords {
		return nil, 0, fmt.Errorf("read the log of context switches: record %d of %d", put, l.ringRecords)
	}
	dropped = le.Uint64(l.header[atDropped:]) // the driver clears it at UPDATE_GET
	l.records = l.records[:0]
	for ; l.get != put; l.get = (l.get + 1) % l.ringRecords {
		l.records = append(l.records, parseRecord(l.ring[recordBytes*l.get:]))
	}
	if err := Control(l.file, l.handle, l.buffer, callUpdateGet, &updateGetParams{records: l.get}); err != nil {
		return nil, 0, fmt.Errorf("give records of switches back to the driver: %w", err)
	}
	return l.records, dropped, nil
}

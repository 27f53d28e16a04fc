// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/simgpu/control/runlist"
)

// eventBuffer is a ring of records in memory that its user reads (cl90cd.h).
type eventBuffer struct {
	header, records *memory
	count           uint32
	subdevice       *gpu
	user            uint32 // 0 sees everybody's numbers
	enabled         bool
	newest          bool // what is old makes room

	boundTo  *gpu
	since    int64 // to be added to the times of switches
	put, get uint32
	written  uint64
	dropped  uint64
	serial   uint16
	switches []runlist.Switch // not written yet
	moved    bool             // the header is not that in the memory
}

const (
	recordBytes  = 32
	headerBytes  = 32
	kindSwitch   = 2
	tagCame      = 6
	tagLeft      = 7
	nobody       = 0xffffffff // the kernel's own
	mostSwitches = 1 << 16    // of the GPU's own ring
)

func newEventBuffer(c *client, params []byte) (what any, status uint32) {
	object := func(at int) any {
		if o := c.objects[le.Uint32(params[at:])]; o != nil {
			return o.what
		}
		return nil
	}
	b := &eventBuffer{count: le.Uint32(params[20:]), user: c.uid}
	var ok [3]bool
	b.subdevice, ok[0] = object(52).(*gpu)
	b.header, ok[1] = object(60).(*memory)
	b.records, ok[2] = object(64).(*memory)
	switch {
	case !ok[0] || !ok[1] || !ok[2]:
		return nil, statusBadHandle
	case le.Uint32(params[16:]) != recordBytes, b.count < 2, uint64(b.count)*recordBytes > uint64(len(b.records.bytes)):
		return nil, statusBadArgument
	case !b.header.readOnly || !b.records.readOnly:
		return nil, statusBadArgument
	}
	return b, statusOK
}

// record keeps a switch for all that read this GPU's log.
func (g *gpu) record(s runlist.Switch) {
	for _, b := range g.buffers {
		if b.enabled && len(b.switches) < mostSwitches {
			b.switches = append(b.switches, s)
		}
	}
}

// bind lets a buffer have a GPU's switches.
func (d *driver) bind(b *eventBuffer, g *gpu) {
	b.boundTo, b.since = g, d.since
	g.buffers = append(g.buffers, b)
	d.bound++
	if !d.reading {
		d.reading = true
		go d.readOften()
	}
}

func (d *driver) unbind(b *eventBuffer) {
	if b.boundTo == nil {
		return
	}
	b.boundTo.buffers = slices.DeleteFunc(b.boundTo.buffers, func(other *eventBuffer) bool { return other == b })
	b.boundTo = nil
	d.bound--
}

// readOften is the driver's own reader, as long as there is a buffer.
func (d *driver) readOften() {
	every := 33 * time.Millisecond
	if d.conf.control == controlOld {
		every = time.Second
	}
	for {
		time.Sleep(every)
		d.lock.Lock()
		if d.bound == 0 {
			d.reading = false
			d.lock.Unlock()
			return
		}
		d.lock.Unlock()
		d.flush()
	}
}

// write puts what happened into the ring.
func (b *eventBuffer) write() (changes []change) {
	for _, s := range b.switches {
		serial := b.serial
		b.serial++
		next := (b.put + 1) % b.count
		if next == b.get {
			if !b.newest {
				b.dropped++
				continue
			}
			b.get = (b.get + 1) % b.count
		}
		changes = append(changes, b.records.put(int(b.put)*recordBytes, b.bytesOf(s, serial)))
		b.put = next
		b.written++
	}
	if len(b.switches) == 0 && !b.moved {
		return nil
	}
	b.switches, b.moved = nil, false
	return append(joined(changes), b.writeHeader())
}

// joined are changes with those made one that lie behind each other.
func joined(changes []change) (fewer []change) {
	for _, c := range changes {
		if last := len(fewer) - 1; last >= 0 && fewer[last].last == c.first {
			fewer[last].last = c.last
		} else {
			fewer = append(fewer, c)
		}
	}
	return fewer
}

// writeHeader is NV_EVENT_BUFFER_HEADER.
func (b *eventBuffer) writeHeader() change {
	h := make([]byte, headerBytes)
	le.PutUint32(h, b.get)
	le.PutUint32(h[4:], b.put)
	le.PutUint64(h[8:], b.written)
	le.PutUint64(h[16:], b.dropped)
	return b.header.put(0, h)
}

// bytesOf is a record (cl90cdfecs.h). Who is not root learns nothing of others but that they came and left.
func (b *eventBuffer) bytesOf(s runlist.Switch, serial uint16) []byte {
	r := make([]byte, recordBytes)
	le.PutUint16(r, kindSwitch)
	le.PutUint32(r[4:], recordBytes-8)
	r[8] = tagLeft
	if s.Came {
		r[8] = tagCame
	}
	le.PutUint16(r[10:], serial)
	pid := uint32(s.Group.PID)
	if s.Gone {
		pid = nobody
	}
	if b.user == 0 || b.user == s.Group.UID {
		le.PutUint32(r[12:], s.Channel)
		le.PutUint32(r[16:], pid)
	}
	le.PutUint64(r[24:], uint64(s.AtNS+b.since)&^31)
	return r
}

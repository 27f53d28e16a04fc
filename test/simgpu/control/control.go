// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

// asked is one control call.
type asked struct {
	d      *driver
	q      *request
	c      *client
	object any // nil: the client itself
	params []byte
	flush  bool // what the call changed is shown at once
}

// controls are the calls that are known, with the size of their parameters (ctrl0000.h, ctrl2080*.h, ctrl90cd.h, ctrla06c.h).
var controls = map[uint32]struct {
	bytes int
	do    func(*asked) uint32
}{
	0x201:      {128, (*asked).attached},
	0x205:      {32, (*asked).idInfo},
	0x21b:      {12, (*asked).pciInfo},
	0x20800403: {8, (*asked).clock},
	0x2080110b: {536, (*asked).disable},
	0x20801210: {32, (*asked).setPreemption},
	0x20801215: {32, (*asked).saves},
	0x2080121c: {24, (*asked).resident},
	0x20801238: {24, (*asked).bind},
	0x90cd0101: {8, (*asked).enableEvents},
	0x90cd0102: {8, (*asked).updateGet},
	0x90cd0104: {0, (*asked).flushEvents},
	0xa06c0101: {3, (*asked).schedule},
	0xa06c0103: {8, (*asked).setSlice},
	0xa06c0104: {8, (*asked).slice},
	0xa06c0105: {8, (*asked).preempt},
	0xa06c0107: {4, (*asked).interleave},
}

// refused are those by which a root process keeps shares, where simgpu.conf says control=refuse.
var refused = map[uint32]bool{0x2080110b: true, 0x20801238: true, 0xa06c0103: true}

func (d *driver) control(q *request, file uint64, argument []byte) uint32 {
	command := le.Uint32(argument[8:])
	known, ok := controls[command]
	address, bytes := le.Uint64(argument[16:]), int(le.Uint32(argument[24:]))
	switch {
	case !ok || d.conf.control == controlRefuses && refused[command]:
		return statusNotSupported
	case bytes != known.bytes:
		return statusBadParams
	}
	params, ok := readMemory(q.tid, address, bytes)
	if !ok {
		return statusBadAddress
	}
	a := &asked{d: d, q: q, params: params}
	status := a.answer(file, le.Uint32(argument), le.Uint32(argument[4:]), known.do)
	if a.flush {
		d.flush()
	}
	if status == statusOK && !writeMemory(q.tid, address, a.params) {
		return statusBadAddress
	}
	return status
}

func (a *asked) answer(file uint64, client, object uint32, do func(*asked) uint32) uint32 {
	a.d.enter()
	defer a.d.leave()
	if a.c = a.d.owned(file, client); a.c == nil {
		return statusBadClient
	}
	if object != client {
		o := a.c.objects[object]
		if o == nil {
			return statusNoSuchObject
		}
		a.object = o.what
	}
	return do(a)
}

func (a *asked) attached() uint32 {
	for i := range 32 {
		id := uint32(0xffffffff)
		if i < len(a.d.gpus) {
			id = a.d.idOf(a.d.gpus[i])
		}
		le.PutUint32(a.params[4*i:], id)
	}
	return statusOK
}

func (d *driver) idOf(g *gpu) uint32 { return uint32(d.conf.bus[g.index]) << 8 }

func (a *asked) byID() *gpu {
	for _, g := range a.d.gpus {
		if a.d.idOf(g) == le.Uint32(a.params) {
			return g
		}
	}
	return nil
}

func (a *asked) idInfo() uint32 {
	g := a.byID()
	if g == nil {
		return statusBadArgument
	}
	le.PutUint32(a.params[8:], uint32(g.instance))
	le.PutUint32(a.params[24:], uint32(g.instance))
	return statusOK
}

func (a *asked) pciInfo() uint32 {
	g := a.byID()
	if g == nil {
		return statusBadArgument
	}
	le.PutUint32(a.params[4:], 0)
	le.PutUint16(a.params[8:], uint16(a.d.conf.bus[g.index]))
	le.PutUint16(a.params[10:], 0)
	return statusOK
}

func (a *asked) clock() uint32 {
	le.PutUint64(a.params, uint64(clockNS()+a.d.since))
	return statusOK
}

// disable compares no owner, as the driver does not: handles are enough. It ends at the first channel that is not there, and those before it are
// switched by then.
func (a *asked) disable() uint32 {
	const most, clients, channels = 64, 24, 280
	g, ok := a.object.(*gpu)
	count := int(le.Uint32(a.params[4:]))
	if !ok || count > most {
		return statusBadArgument
	}
	for i := range count {
		ch := a.d.channel(le.Uint32(a.params[clients+4*i:]), le.Uint32(a.params[channels+4*i:]))
		if ch == nil || ch.group.gpu != g {
			return statusBadChannel
		}
		ch.group.list.Disable(a.params[0] != 0, a.params[8] != 0, a.params[9] != 0, ch.Channel)
	}
	return statusOK
}

// channel is a client's, or nil.
func (d *driver) channel(client, handle uint32) *channel {
	if c := d.clients[client]; c != nil && c.objects[handle] != nil {
		ch, _ := c.objects[handle].what.(*channel)
		return ch
	}
	return nil
}

// groupNamed is one of the client's that a call of a subdevice names.
func (a *asked) groupNamed(at int) *group {
	if o := a.c.objects[le.Uint32(a.params[at:])]; o != nil {
		if g, ok := o.what.(*group); ok && g.gpu == a.object {
			return g
		}
	}
	return nil
}

// setPreemption counts the compute mode alone: 0 waits for idle, 2 cuts within a kernel.
func (a *asked) setPreemption() uint32 {
	const setsCompute = 1
	g := a.groupNamed(4)
	if g == nil {
		return statusBadHandle
	}
	if le.Uint32(a.params)&setsCompute != 0 {
		g.WaitsForIdle = le.Uint32(a.params[12:]) == 0
	}
	return statusOK
}

func (a *asked) saves() uint32 {
	g := a.groupNamed(0)
	if g == nil {
		return statusBadHandle
	}
	for i, n := range []uint32{g.Saves, g.Restores, g.Idle, 0, g.Inner, 0} {
		le.PutUint32(a.params[8+4*i:], n)
	}
	return statusOK
}

func (a *asked) resident() uint32 {
	g, ok := a.object.(*gpu)
	if !ok {
		return statusBadHandle
	}
	channel, ok := g.compute.Resident()
	if !ok {
		return statusBadState
	}
	le.PutUint32(a.params, channel)
	return statusOK
}

func (a *asked) bind() uint32 {
	g, ok := a.object.(*gpu)
	o := a.c.objects[le.Uint32(a.params)]
	if !ok || o == nil {
		return statusBadHandle
	}
	b, ok := o.what.(*eventBuffer)
	switch {
	case !ok:
		return statusBadHandle
	case b.boundTo != nil:
		return statusBadState
	case b.subdevice != g:
		le.PutUint32(a.params[20:], 2) // not this GPU
		return statusBadArgument
	case !b.enabled:
		le.PutUint32(a.params[20:], 3)
		return statusBadState
	}
	a.d.bind(b, g)
	return statusOK
}

func (a *asked) enableEvents() uint32 {
	const keepOldest, keepNewest = 1, 2
	b, ok := a.object.(*eventBuffer)
	flags := le.Uint32(a.params[4:])
	if !ok || a.params[0] != 0 && flags != keepOldest && flags != keepNewest {
		return statusBadArgument
	}
	b.enabled, b.newest = a.params[0] != 0, flags == keepNewest
	return statusOK
}

func (a *asked) updateGet() uint32 {
	b, ok := a.object.(*eventBuffer)
	get := le.Uint32(a.params)
	if !ok || get >= b.count {
		return statusBadArgument
	}
	b.get, b.dropped, b.moved, a.flush = get, 0, true, true
	return statusOK
}

func (a *asked) flushEvents() uint32 {
	a.flush = true
	return statusOK
}

func (a *asked) group() *group {
	g, _ := a.object.(*group)
	return g
}

func (a *asked) schedule() uint32 {
	if a.group() == nil {
		return statusBadHandle
	}
	return statusOK
}

func (a *asked) setSlice() uint32 {
	g := a.group()
	if g == nil {
		return statusBadHandle
	}
	g.askedUS = le.Uint64(a.params)
	g.SliceNS = int64(min(g.askedUS, 100_000_000)) * 1000
	return statusOK
}

// slice is what was asked for, not what is kept.
func (a *asked) slice() uint32 {
	g := a.group()
	if g == nil {
		return statusBadHandle
	}
	le.PutUint64(a.params, g.askedUS)
	return statusOK
}

func (a *asked) preempt() uint32 {
	const mostUS = 1_000_000
	g := a.group()
	if g == nil || le.Uint32(a.params[4:]) > mostUS {
		return statusBadArgument
	}
	g.list.Preempt(g.Group)
	return statusOK
}

// interleave changes nothing, as on an H200.
func (a *asked) interleave() uint32 {
	if a.group() == nil {
		return statusBadHandle
	}
	if a.q.uid != 0 {
		return statusNoPermission
	}
	return statusOK
}

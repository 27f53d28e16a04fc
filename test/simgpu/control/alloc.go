// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/slurm-vgpu/slurm-vgpu/test/simgpu/control/runlist"

// Classes of what a client makes.
const (
	classClient      = 0x41
	classDevice      = 0x80
	classSubdevice   = 0x2080
	classGroup       = 0xa06c
	classMemory      = 0x90ce
	classEventBuffer = 0x90cd
)

func isChannel(class uint32) bool { return class&0xff == 0x6f && class >= 0xc36f && class <= 0xce6f }

// paramBytes are how much of an object's parameters is looked at.
var paramBytes = map[uint32]int{classDevice: 56, classSubdevice: 4, classGroup: 20, classMemory: 128, classEventBuffer: 72}

const mostChannels = 2048 // of a GPU

// channel is one of a group.
type channel struct {
	*runlist.Channel
	group *group
}

// alloc makes an object, or a client. A size of 0 is what the driver's headers say.
func (d *driver) alloc(q *request, file uint64, argument []byte, size uint32) uint32 {
	handle, parent := le.Uint32(argument[8:]), le.Uint32(argument[4:])
	class := le.Uint32(argument[12:])
	params := make([]byte, paramBytes[class])
	if address := le.Uint64(argument[16:]); address != 0 && len(params) > 0 {
		wanted := len(params)
		if size != 0 {
			wanted = min(wanted, int(size))
		}
		had, ok := readMemory(q.tid, address, wanted)
		if !ok {
			return statusBadAddress
		}
		copy(params, had)
	}
	d.enter()
	defer d.leave()
	if class == classClient {
		handle = d.newClient(file, q)
		le.PutUint32(argument[8:], handle)
		return statusOK
	}
	c := d.owned(file, le.Uint32(argument))
	if c == nil {
		return statusBadClient
	}
	if handle == 0 {
		handle = c.newHandle()
	}
	if c.objects[handle] != nil || handle == c.handle {
		return statusAlreadyExists
	}
	what, status := d.newObject(c, parent, class, params)
	if status != statusOK {
		return status
	}
	c.objects[handle] = &object{handle: handle, parent: parent, class: class, what: what}
	le.PutUint32(argument[8:], handle)
	return statusOK
}

func (d *driver) newClient(file uint64, q *request) uint32 {
	for d.clients[d.nextNew] != nil {
		d.nextNew++
	}
	c := &client{handle: d.nextNew, file: file, pid: processOf(q.tid), uid: q.uid, objects: map[uint32]*object{}, next: 0xcaf00000}
	d.clients[c.handle] = c
	d.nextNew++
	return c.handle
}

func (c *client) newHandle() uint32 {
	for c.objects[c.next] != nil {
		c.next++
	}
	c.next++
	return c.next - 1
}

// newObject makes what is of one class, below a parent of the same client.
func (d *driver) newObject(c *client, parent, class uint32, params []byte) (what any, status uint32) {
	above := c.objects[parent]
	if above == nil && parent != c.handle {
		return nil, statusBadParent
	}
	switch {
	case class == classDevice && above == nil:
		if g := d.byInstance(int(le.Uint32(params))); g != nil {
			return g, statusOK
		}
		return nil, statusBadDevice
	case class == classSubdevice && above != nil && above.class == classDevice:
		return above.what, statusOK
	case class == classGroup && above != nil && above.class == classDevice:
		return newGroup(c, above.what.(*gpu), le.Uint32(params[12:])), statusOK
	case isChannel(class) && above != nil && above.class == classGroup:
		return newChannel(above.what.(*group))
	case class == classMemory && above == nil:
		return newMemory(params)
	case class == classEventBuffer && above == nil:
		return newEventBuffer(c, params)
	case paramBytes[class] != 0 || isChannel(class):
		return nil, statusBadParent
	}
	return nil, statusBadClass
}

// computes says so of an engine (NV2080_ENGINE_TYPE_GR0 to GR7).
func computes(engine uint32) bool { return engine >= 1 && engine <= 8 }

func newGroup(c *client, g *gpu, engine uint32) *group {
	list := g.copies
	if computes(engine) {
		list = g.compute
	}
	return &group{Group: list.Add(c.pid, c.uid), list: list, gpu: g}
}

func newChannel(g *group) (what any, status uint32) {
	if g.gpu.channels >= mostChannels {
		return nil, statusNoResources
	}
	g.gpu.channels++
	return &channel{Channel: g.list.AddChannel(g.Group), group: g}, statusOK
}

func newMemory(params []byte) (what any, status uint32) {
	const userReadOnly = 1 << 22
	bytes := le.Uint64(params[64:])
	if bytes == 0 || bytes > mostMemoryBytes {
		return nil, statusNoResources
	}
	return &memory{readOnly: le.Uint32(params[28:])&userReadOnly != 0, bytes: make([]byte, (bytes+4095)&^4095)}, statusOK
}

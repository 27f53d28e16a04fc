// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"sync"

	"github.com/slurm-vgpu/slurm-vgpu/test/simgpu/control/runlist"
	"golang.org/x/sys/unix"
)

// driver is what the device file answers: clients with their objects, as the real one keeps them.
type driver struct {
	conf  conf
	files *files
	timer *timer
	since int64 // to be added to the machine's clock: the GPU's is another one

	lock      sync.Mutex
	gpus      []*gpu
	clients   map[uint32]*client
	nextNew   uint32
	ends      map[uint64]*ends // by open file
	bound     int              // buffers that are bound
	reading   bool             // the driver's own reader is under way
	storing   sync.Mutex
	connected *connection
}

// gpu has one list of groups that compute, and one of those that copy.
type gpu struct {
	index, instance int
	compute, copies *runlist.Runlist
	channels        int
	buffers         []*eventBuffer
}

// client is one that was made through an open file, which is its owner.
type client struct {
	handle  uint32
	file    uint64
	pid     int
	uid     uint32
	objects map[uint32]*object
	next    uint32
}

// object is of a client; what is *gpu, *group, *runlist.Channel, *memory or *eventBuffer.
type object struct {
	handle, parent, class uint32
	what                  any
}

// group is a channel group on one of the lists of a GPU.
type group struct {
	*runlist.Group
	list *runlist.Runlist
	gpu  *gpu
	// asked is the slice as it was asked for.
	askedUS uint64
}

func newDriver(c conf) *driver {
	d := &driver{conf: c, clients: map[uint32]*client{}, ends: map[uint64]*ends{}, nextNew: 0xc1d00000}
	now := clockNS()
	d.since = realNS() - now
	for i := range c.devices {
		g := &gpu{index: i, instance: c.devices - 1 - i, compute: runlist.New(now), copies: runlist.New(now)}
		g.compute.Log = g.record
		d.gpus = append(d.gpus, g)
	}
	return d
}

func clockNS() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

func realNS() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_REALTIME, &t)
	return t.Nano()
}

func (d *driver) byInstance(instance int) *gpu {
	for _, g := range d.gpus {
		if g.instance == instance {
			return g
		}
	}
	return nil
}

// catchUp is done before anything else: what happened until now happened under what was so until now.
func (d *driver) catchUp() {
	now := clockNS()
	for _, g := range d.gpus {
		g.compute.Advance(now)
		g.copies.Advance(now)
	}
}

// enter takes the lock; leave gives it back once who waits for an end has it.
func (d *driver) enter() {
	d.lock.Lock()
	d.catchUp()
}

func (d *driver) leave() {
	next := int64(runlist.Never)
	for _, g := range d.gpus {
		next = min(next, g.compute.DoneNotBefore(), g.copies.DoneNotBefore())
	}
	d.tellEnds()
	d.timer.set(next)
	d.lock.Unlock()
}

// release ends all that an open file owns, when its last copy is closed.
func (d *driver) release(file uint64) {
	d.enter()
	defer d.leave()
	for _, c := range d.clients {
		if c.file == file {
			d.freeClient(c)
		}
	}
	delete(d.ends, file)
}

func (d *driver) freeClient(c *client) {
	for handle := range c.objects {
		d.freeObject(c, handle)
	}
	delete(d.clients, c.handle)
}

// freeObject ends an object and all below it.
func (d *driver) freeObject(c *client, handle uint32) {
	o := c.objects[handle]
	if o == nil {
		return
	}
	delete(c.objects, handle)
	for child, other := range c.objects {
		if other.parent == handle {
			d.freeObject(c, child)
		}
	}
	switch what := o.what.(type) {
	case *group:
		what.list.Remove(what.Group)
	case *channel:
		what.group.gpu.channels--
		what.group.list.RemoveChannel(what.Channel)
	case *eventBuffer:
		d.unbind(what)
	}
}

// owned is a client, if the open file owns it.
func (d *driver) owned(file uint64, handle uint32) *client {
	if c := d.clients[handle]; c != nil && c.file == file {
		return c
	}
	return nil
}

// flush writes what happened into all buffers. The pages are the kernel's to change, which may wait for a reader, so it is done without the
// driver's lock, but one after the other.
func (d *driver) flush() {
	d.storing.Lock()
	defer d.storing.Unlock()
	var changes []change
	d.enter()
	for _, g := range d.gpus {
		for _, b := range g.buffers {
			changes = append(changes, b.write()...)
		}
	}
	d.leave()
	for _, c := range changes {
		c.store(d.connected)
	}
}

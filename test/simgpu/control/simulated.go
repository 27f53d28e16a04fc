// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/slurm-vgpu/slurm-vgpu/test/simgpu/control/runlist"
	"golang.org/x/sys/unix"
)

// ends are the kernels of one open file that have ended, until somebody asks.
type ends struct {
	last   uint64 // the number of its last kernel
	done   []end
	waiter uint64 // a call that waits for one; 0: none
}

type end struct{ ticket, atNS uint64 }

// What the calls of type 'S' take; control.h has the same.
const (
	submitBytes = 24
	waitBytes   = 1000
	mostEnds    = (waitBytes - 8) / 16
	bucketBytes = 24
	activeBytes = 32
	whereBytes  = 8
)

func isSimulated(q *request) bool { return len(q.body) > 16 && q.body[13] == 'S' }

// simulated is a call of the simulated libraries.
func (d *driver) simulated(q *request, file uint64, number uint32, argument []byte) {
	sizes := map[uint32]int{simSubmit: submitBytes, simWait: waitBytes, simBucket: bucketBytes, simActive: activeBytes, simWhere: whereBytes}
	if len(argument) != sizes[number] {
		q.fail(unix.EINVAL)
		return
	}
	d.enter()
	defer d.leave()
	if number == simWait {
		d.wait(q, file)
		return
	}
	errno := unix.Errno(0)
	if number == simSubmit {
		errno = d.submit(file, argument)
	} else if index := le.Uint32(argument); index >= uint32(len(d.gpus)) {
		errno = unix.ENODEV
	} else {
		d.gpus[index].tell(number, argument)
	}
	if errno != 0 {
		q.fail(errno)
		return
	}
	q.answer(answered(0, argument))
}

// tell says what the GPU did.
func (g *gpu) tell(number uint32, argument []byte) {
	pid := int(int32(le.Uint32(argument[4:])))
	switch number {
	case simBucket:
		le.PutUint64(argument[16:], uint64(g.compute.InBucket(int64(le.Uint64(argument[8:])), pid)))
	case simActive:
		ns, at := g.compute.Active()
		le.PutUint64(argument[8:], uint64(ns))
		le.PutUint64(argument[16:], uint64(at))
		le.PutUint64(argument[24:], uint64(g.compute.BusyOf(pid)))
	case simWhere:
		le.PutUint32(argument[4:], uint32(g.instance))
	}
}

func (d *driver) endsOf(file uint64) *ends {
	e := d.ends[file]
	if e == nil {
		e = &ends{}
		d.ends[file] = e
	}
	return e
}

// submit puts a kernel into a channel, and numbers it.
func (d *driver) submit(file uint64, argument []byte) unix.Errno {
	const mostNS = 3600e9
	c := d.owned(file, le.Uint32(argument))
	if c == nil {
		return unix.EPERM
	}
	o, ns := c.objects[le.Uint32(argument[4:])], le.Uint64(argument[8:])
	if o == nil || ns > mostNS {
		return unix.EINVAL
	}
	ch, ok := o.what.(*channel)
	if !ok {
		return unix.EINVAL
	}
	e := d.endsOf(file)
	e.last++
	ticket := e.last
	ch.group.list.Submit(&runlist.Work{Channel: ch.Channel, NS: int64(ns), Done: func(atNS int64) {
		e.done = append(e.done, end{ticket, uint64(atNS)})
	}})
	le.PutUint64(argument[16:], ticket)
	return 0
}

// wait answers once something has ended.
func (d *driver) wait(q *request, file uint64) {
	e := d.endsOf(file)
	if e.waiter != 0 {
		q.fail(unix.EBUSY)
		return
	}
	d.files.wait(q)
	e.waiter = q.unique // leave tells it
}

func (d *driver) forgetWait(unique uint64) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for _, e := range d.ends {
		if e.waiter == unique {
			e.waiter = 0
		}
	}
}

// tellEnds answers those who wait for what has ended.
func (d *driver) tellEnds() {
	for _, e := range d.ends {
		if e.waiter == 0 || len(e.done) == 0 {
			continue
		}
		q, ok := d.files.done(e.waiter)
		e.waiter = 0
		if !ok {
			continue
		}
		n := min(len(e.done), mostEnds)
		argument := make([]byte, waitBytes)
		le.PutUint32(argument, uint32(n))
		for i, one := range e.done[:n] {
			le.PutUint64(argument[8+16*i:], one.ticket)
			le.PutUint64(argument[16+16*i:], one.atNS)
		}
		e.done = append([]end(nil), e.done[n:]...)
		q.answer(answered(0, argument))
	}
}

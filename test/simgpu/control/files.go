// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// files is the folder with the device file: which files are open, and whose pages show what.
type files struct {
	driver *driver

	lock    sync.Mutex
	next    uint64            // of nodes and handles
	nodes   map[uint64]uint64 // how often the kernel knows of each
	memory  map[uint64]*memory
	waiting map[uint64]*request // calls that are not answered yet
}

func newFiles(d *driver) *files {
	f := &files{driver: d, next: 16, nodes: map[uint64]uint64{}, memory: map[uint64]*memory{}, waiting: map[uint64]*request{}}
	d.files = f
	return f
}

func (f *files) newNumber() uint64 {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.next++
	return f.next
}

// handle answers one request.
func (f *files) handle(q *request) {
	switch q.op {
	case opInit:
		q.answer(begun())
	case opLookup:
		f.lookup(q)
	case opForget:
		f.forget(q.node, le.Uint64(q.body))
	case opBatchForget:
		for at := 8; at+16 <= len(q.body); at += 16 {
			f.forget(le.Uint64(q.body[at:]), le.Uint64(q.body[at+8:]))
		}
	case opGetattr:
		q.answer(gotAttributes(q.node))
	case opOpen:
		q.answer(opened(f.newNumber()))
	case opRelease:
		go f.driver.release(le.Uint64(q.body))
		q.answer(nil)
	case opRead:
		q.answer(f.read(q.node, int(le.Uint64(q.body[8:])), int(le.Uint32(q.body[16:]))))
	case opReaddir:
		q.answer(listed(le.Uint64(q.body[8:])))
	case opOpendir:
		q.answer(opened(0))
	case opFlush, opReleasedir, opDestroy:
		q.answer(nil)
	case opStatfs:
		q.answer(make([]byte, 80))
	case opIoctl:
		f.ioctl(q)
	case opInterrupt:
		f.interrupt(q)
	default:
		q.fail(unix.ENOSYS)
	}
}

// ioctl may wait for the kernel to take a page, or to read one of the caller's, which waits for a reader: it has a thread of its own, but for
// the calls of the simulated libraries, which are many and do neither.
func (f *files) ioctl(q *request) {
	if isSimulated(q) {
		f.driver.ioctl(q)
		return
	}
	q.body = slices.Clone(q.body)
	go f.driver.ioctl(q)
}

func (f *files) lookup(q *request) {
	if q.node != rootNode || string(q.body) != fileName+"\x00" {
		q.fail(unix.ENOENT)
		return
	}
	node := f.newNumber()
	f.lock.Lock()
	f.nodes[node] = 1
	f.lock.Unlock()
	q.answer(entry(node))
}

func (f *files) forget(node, times uint64) {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.nodes[node] > times {
		f.nodes[node] -= times
		return
	}
	delete(f.nodes, node)
	delete(f.memory, node)
}

// show makes a file's pages those of the driver's memory; false: there is no such file.
func (f *files) show(node uint64, m *memory) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	if f.nodes[node] == 0 || f.memory[node] != nil {
		return false
	}
	f.memory[node] = m
	m.shownIn(node)
	return true
}

func (f *files) read(node uint64, offset, size int) []byte {
	data := make([]byte, min(size, mostBytes))
	f.lock.Lock()
	m := f.memory[node]
	f.lock.Unlock()
	if m != nil {
		m.copyTo(data, offset)
	}
	return data
}

// wait keeps a call that is answered later, by done or because its thread got a signal.
func (f *files) wait(q *request) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.waiting[q.unique] = q
}

// done takes a call that waits; false: it does not any more.
func (f *files) done(unique uint64) (*request, bool) {
	f.lock.Lock()
	defer f.lock.Unlock()
	q, ok := f.waiting[unique]
	delete(f.waiting, unique)
	return q, ok
}

// interrupt ends a call that waits. One that nobody has read yet is asked about again.
func (f *files) interrupt(q *request) {
	if waiting, ok := f.done(le.Uint64(q.body)); ok {
		f.driver.forgetWait(waiting.unique)
		waiting.fail(unix.EINTR)
		return
	}
	q.fail(unix.EAGAIN)
}

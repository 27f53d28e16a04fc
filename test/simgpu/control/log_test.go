// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// reader has a buffer with a GPU's switches, as root and as nsys has it.
type reader struct {
	*context
	buffer       uint32
	header, ring []byte
	count        uint32
}

func newReader(t *testing.T, dir string, u *user, count uint32) *reader {
	t.Helper()
	r := &reader{context: u.context(0), count: count}
	memoryOf := func(bytes uint32) uint32 {
		params := make([]byte, 128)
		le.PutUint32(params[28:], 1<<22)
		le.PutUint64(params[64:], uint64(bytes))
		return r.alloc(r.client, classMemory, params)
	}
	header, ring := memoryOf(4096), memoryOf(count*recordBytes)
	params := make([]byte, 72)
	copy(params[16:], words(recordBytes, count))
	copy(params[52:], words(r.subdevice, 0, header, ring))
	r.buffer = r.alloc(r.client, classEventBuffer, params)
	r.header, r.ring = r.mapped(t, dir, header, 4096), r.mapped(t, dir, ring, int(count)*recordBytes)
	status := r.control(r.buffer, 0x90cd0101, words(1, 1))
	status |= r.control(r.subdevice, 0x20801238, words(r.buffer, recordBytes, 1, 0, 1, 0))
	if status != 0 {
		t.Fatalf("bind the buffer: status %#x", status)
	}
	return r
}

func (r *reader) mapped(t *testing.T, dir string, memory uint32, bytes int) []byte {
	t.Helper()
	fd := openDevice(dir)
	defer unix.Close(fd)
	argument := words(r.client, r.client, memory, 0, 0, 0, uint32(bytes), 0, 0, 0, 0, 1, uint32(fd), 0)
	must(call(r.fd, 'F', escapeMap, argument))
	if status := le.Uint32(argument[40:]); status != 0 {
		t.Fatalf("map memory: status %#x", status)
	}
	pages, err := unix.Mmap(fd, 0, bytes, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(pages) })
	return pages
}

type seen struct {
	tag    byte
	serial uint16
	pid    uint32
	atNS   int64
}

// poll takes what is new.
func (r *reader) poll(t *testing.T) (all []seen) {
	t.Helper()
	if status := r.control(r.buffer, 0x90cd0104, nil); status != 0 {
		t.Fatalf("flush: status %#x", status)
	}
	get, put := le.Uint32(r.header), le.Uint32(r.header[4:])
	for ; get != put; get = (get + 1) % r.count {
		b := r.ring[get*recordBytes:]
		all = append(all, seen{b[8], le.Uint16(b[10:]), le.Uint32(b[16:]), int64(le.Uint64(b[24:]))})
	}
	if status := r.control(r.buffer, 0x90cd0102, words(get, 0)); status != 0 {
		t.Fatalf("update: status %#x", status)
	}
	if left := le.Uint32(r.header); left != get {
		t.Errorf("the header has %d as taken, want %d", left, get)
	}
	return all
}

// dropped is how many records found no room since the last poll.
func (r *reader) dropped() uint64 { return le.Uint64(r.header[16:]) }

func (r *reader) clock(t *testing.T) int64 {
	t.Helper()
	ns := words(0, 0)
	if status := r.control(r.subdevice, 0x20800403, ns); status != 0 {
		t.Fatalf("the GPU's time: status %#x", status)
	}
	return int64(le.Uint64(ns))
}

func TestTheLogHasEverySwitchInOrder(t *testing.T) {
	dir := started(t)
	r := newReader(t, dir, newUser(dir), 1024)
	a, b := played(t, dir), played(t, dir)
	if status := a.setSlice(500) | b.setSlice(1000); status != 0 {
		t.Fatalf("set slices: status %#x", status)
	}
	var all []seen
	var began int64
	var least, most [2][]time.Duration // what both had from the first record's time on, and until the last's
	begin := func() {
		most[0] = busyOf(r.user, a, b)
		r.poll(t)
		began, least[0], all = r.clock(t), busyOf(r.user, a, b), nil
	}
	begin()
	await(t, "a ring goes round of which nothing is dropped", func() bool {
		least[1] = busyOf(r.user, a, b)
		all = append(all, r.poll(t)...)
		most[1] = busyOf(r.user, a, b)
		if r.dropped() > 0 { // this test came too late
			begin()
		}
		return len(all) > 1500
	})
	had, came := map[uint32]time.Duration{}, int64(0)
	for i, s := range all {
		if i > 0 && (s.serial != all[i-1].serial+1 || s.atNS < all[i-1].atNS || s.tag == all[i-1].tag) {
			t.Fatalf("%+v behind %+v", s, all[i-1])
		}
		if s.tag == tagCame {
			came = s.atNS
		} else if came != 0 {
			had[s.pid] += time.Duration(s.atNS - came)
		}
	}
	if len(had) > 2 {
		t.Fatalf("%d records of %d processes", len(all), len(had))
	}
	if first := all[0].atNS; first < began-int64(time.Second) || first > began+int64(time.Second) {
		t.Errorf("a record of %d, and the GPU's time was %d", first, began)
	}
	for i, p := range []*player{a, b} {
		// A turn's save is in it; who is on when the log begins has one turn less.
		least, most := least[1][i]-least[0][i]-2*time.Millisecond, (most[1][i]-most[0][i])*3/2
		if resident := had[uint32(p.pid)]; resident < least || resident > most {
			t.Errorf("resident for %v, want %v to %v", resident, least, most)
		}
	}
}

// Another user sees that somebody came and left.
func TestWhoIsNotRootSeesNoNumbers(t *testing.T) {
	dir := started(t)
	played(t, dir)
	played(t, dir)
	r := newReader(t, dir, newUserAs(dir, 4242), 1024)
	var all []seen
	await(t, "records", func() bool { all = append(all, r.poll(t)...); return len(all) > 10 })
	for _, s := range all {
		if s.pid != 0 {
			t.Fatalf("%+v", s)
		}
	}
}

func TestAFullRingSaysWhatItDropped(t *testing.T) {
	dir := started(t)
	r := newReader(t, dir, newUser(dir), 8)
	a, b := played(t, dir), played(t, dir)
	if status := a.setSlice(500) | b.setSlice(500); status != 0 {
		t.Fatalf("set slices: status %#x", status)
	}
	await(t, "records are dropped", func() bool {
		if status := r.control(r.buffer, 0x90cd0104, nil); status != 0 {
			t.Fatalf("flush: status %#x", status)
		}
		return r.dropped() > 500
	})
	// A second time where so many are dropped before the count is read.
	await(t, "the count begins anew when the reader comes", func() bool { r.poll(t); return r.dropped() < 50 })
}

// The driver reads its own ring 30 times a second, an old one once.
func TestTheDriverShowsSwitchesByItself(t *testing.T) {
	dir := started(t)
	r := newReader(t, dir, newUser(dir), 1024)
	a, b := played(t, dir), played(t, dir)
	if status := a.setSlice(1000) | b.setSlice(1000); status != 0 {
		t.Fatalf("set slices: status %#x", status)
	}
	await(t, "records without FLUSH", func() bool { return le.Uint32(r.header[4:]) > 10 }) // in pages that are there already
	if b := r.ring[:recordBytes]; le.Uint16(b) != kindSwitch || b[8] != tagCame {
		t.Errorf("the first record is %x", b)
	}
}

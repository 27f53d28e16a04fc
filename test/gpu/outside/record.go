// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"maps"
)

var le = binary.LittleEndian

const recordBytes = 32

// record is one switch of a context, as cl90cd.h and cl90cdfecs.h have it: a head of 8 bytes, then what is here.
type record struct {
	kind   uint16
	tag    uint8
	serial uint16
	pid    uint32 // in the first namespace; 0 for who may not know
	atNS   int64  // of the GPU's clock
}

func parseRecord(b []byte) record {
	return record{kind: le.Uint16(b), tag: b[8], serial: le.Uint16(b[10:]), pid: le.Uint32(b[16:]), atNS: int64(le.Uint64(b[24:]))}
}

// What a record can be. Root gets the simple tags; the others are what they stand for.
const (
	kindSwitch, kindSwitchOld = 2, 134

	tagSaveEnd, tagStart         = 3, 5
	tagSimpleStart, tagSimpleEnd = 6, 7
)

// mostLengths of one process are kept.
const mostLengths = 4000

// turns adds up for how long each process was resident. All times are signed: an END may be older than the time that was read from the GPU before
// it, so that what a process has had until now can be less at a later look.
type turns struct {
	residentNS map[uint32]int64
	count      map[uint32]int
	lengthsUS  map[uint32][]int

	pid      uint32 // who is on, if open
	open     bool
	openNS   int64
	beganNS  int64 // when the log was opened
	serial   int
	records  int
	lost     int // by their serial numbers
	dropped  int // as the driver says
	unlooked int // of another kind, or a start where nobody had ended
}

func newTurns() *turns {
	return &turns{residentNS: map[uint32]int64{}, count: map[uint32]int{}, lengthsUS: map[uint32][]int{}, serial: -1}
}

func (t *turns) take(r record) {
	if r.kind != kindSwitch && r.kind != kindSwitchOld {
		t.unlooked++
		return
	}
	if t.serial >= 0 && int(r.serial) != (t.serial+1)&0xffff {
		t.lost += (int(r.serial) - t.serial - 1) & 0xffff
	}
	t.serial = int(r.serial)
	t.records++
	switch r.tag {
	case tagStart, tagSimpleStart:
		if t.open {
			t.unlooked++
			t.residentNS[t.pid] += r.atNS - t.openNS
		}
		t.pid, t.open, t.openNS = r.pid, true, r.atNS
		t.count[r.pid]++
	case tagSaveEnd, tagSimpleEnd:
		t.end(r)
	}
}

// end closes whoever is on: a context that is gone has another's number in its last record.
func (t *turns) end(r record) {
	if t.open {
		length := r.atNS - t.openNS
		t.residentNS[t.pid] += length
		if known := t.lengthsUS[t.pid]; len(known) < mostLengths {
			t.lengthsUS[t.pid] = append(known, int(length/1000))
		}
	} else if t.records <= 2 && r.atNS > t.beganNS {
		t.residentNS[r.pid] += r.atNS - t.beganNS // who was on when the log was opened
	}
	t.open = false
}

// total is what each had until now, who is on included.
func (t *turns) total(clockNS int64) map[uint32]int64 {
	had := maps.Clone(t.residentNS)
	if t.open && clockNS > t.openNS {
		had[t.pid] += clockNS - t.openNS
	}
	return had
}

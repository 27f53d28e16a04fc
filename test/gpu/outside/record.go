// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
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
	unlooked int // of another kind, or a start where nobody had ended
}

func newTurns() *turns {
	return &turns{residentNS: map[uint32]int64{}, count: map[uint32]int{}, lengthsUS: map[uint32][]int{}, serial: -1}
}

func (t *turns) take(r channels.Record) {
	if !r.IsSwitch() {
		t.unlooked++
		return
	}
	if t.serial >= 0 && int(r.Serial) != (t.serial+1)&0xffff {
		t.lost += (int(r.Serial) - t.serial - 1) & 0xffff
	}
	t.serial = int(r.Serial)
	t.records++
	switch {
	case r.Starts():
		if t.open {
			t.unlooked++
			t.residentNS[t.pid] += r.AtNS - t.openNS
		}
		t.pid, t.open, t.openNS = r.PID, true, r.AtNS
		t.count[r.PID]++
	case r.Ends():
		t.end(r)
	}
}

// end closes whoever is on: a context that is gone has another's number in its last record.
func (t *turns) end(r channels.Record) {
	if t.open {
		length := r.AtNS - t.openNS
		t.residentNS[t.pid] += length
		if known := t.lengthsUS[t.pid]; len(known) < mostLengths {
			t.lengthsUS[t.pid] = append(known, int(length/1000))
		}
	} else if t.records <= 2 && r.AtNS > t.beganNS {
		t.residentNS[r.PID] += r.AtNS - t.beganNS // who was on when the log was opened
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

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "maps"

// Switch is a record of the driver's log: a context comes on, or has left and is saved. One that is neither counts by its serial alone.
type Switch struct {
	AtNS       int64  // of the GPU's clock
	PID        uint32 // in the first namespace; 0 for who may not know
	Context    uint32 // the channel's number
	Serial     uint16
	Start, End bool
}

// Turns adds up for how long each process was resident. All times are signed: an END may be older than the time that was read from the GPU before
// it, so that what a process has had until now can be less at a later look.
type Turns struct {
	ResidentNS map[uint32]int64
	Began      func(on Switch)                 // is called for each turn, if set
	Ended      func(on Switch, lengthNS int64) // the same

	Records    int
	Lost       int // by their serial numbers
	Unexpected int // starts where nobody had ended

	on      Switch // if open
	open    bool
	known   map[uint32]int64 // of who is on: what Since has given already
	beganNS int64            // when the log was opened
	serial  int
}

// NewTurns is for a log that was opened at that time of the GPU.
func NewTurns(beganNS int64) *Turns {
	return &Turns{ResidentNS: map[uint32]int64{}, beganNS: beganNS, serial: -1}
}

// Take adds a record.
func (t *Turns) Take(s Switch) {
	if t.serial >= 0 && int(s.Serial) != (t.serial+1)&0xffff {
		t.Lose((int(s.Serial) - t.serial - 1) & 0xffff)
	}
	t.serial = int(s.Serial)
	t.Records++
	switch {
	case s.End:
		t.end(s)
	case !s.Start:
	case t.open:
		t.Unexpected++
		t.ResidentNS[t.on.PID] += s.AtNS - t.on.AtNS
		t.on = s
	default:
		t.on, t.open = s, true
		if t.Began != nil {
			t.Began(s)
		}
	}
}

// Lose says that records are missing here: nobody knows who has been on since the last one.
func (t *Turns) Lose(records int) {
	t.Lost += records
	t.open, t.known = false, nil
}

// end closes whoever is on: a context that is gone has another's number in its last record.
func (t *Turns) end(s Switch) {
	if t.open {
		length := s.AtNS - t.on.AtNS
		t.ResidentNS[t.on.PID] += length
		if t.Ended != nil {
			t.Ended(t.on, length)
		}
	} else if t.Records == 1 && s.AtNS > t.beganNS {
		t.ResidentNS[s.PID] += s.AtNS - t.beganNS // who was on when the log was opened
	}
	t.open = false
}

// Total is what each had until now, who is on included.
func (t *Turns) Total(clockNS int64) map[uint32]int64 {
	had := maps.Clone(t.ResidentNS)
	if t.open && clockNS > t.on.AtNS {
		had[t.on.PID] += clockNS - t.on.AtNS
	}
	return had
}

// Since is what each had since it was asked last.
func (t *Turns) Since(clockNS int64) map[uint32]int64 {
	had := t.Total(clockNS)
	for pid, ns := range t.known {
		had[pid] -= ns
	}
	t.ResidentNS, t.known = map[uint32]int64{}, map[uint32]int64{}
	if t.open && clockNS > t.on.AtNS {
		t.known[t.on.PID] = clockNS - t.on.AtNS
	}
	return had
}

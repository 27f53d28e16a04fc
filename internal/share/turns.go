// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "maps"

// Switch is a record of the driver's log: a context comes on, or has left and is saved. Any other record counts by its serial alone.
type Switch struct {
	AtNS       int64  // of the GPU's clock
	PID        uint32 // in the first namespace; 0 for readers that may not see it
	Context    uint32 // the channel's number
	Serial     uint16
	Start, End bool
}

// Turns adds up for how long each process was resident. All times are signed: an END may be older than the time that was read from the GPU before it. So the
// sum of a process can be less at a later look.
type Turns struct {
	ResidentNS map[uint32]int64
	Began      func(on Switch)                 // is called for each turn, if set
	Ended      func(on Switch, lengthNS int64) // the same

	Records    int
	Lost       int // by their serial numbers
	Unexpected int // starts without an end before

	on      Switch // if open
	open    bool
	known   map[uint32]int64 // of the process that is on: time that Since has returned already
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

// Lose says that records are missing here: the process that was on since the last record is not known.
func (t *Turns) Lose(records int) {
	t.Lost += records
	t.open, t.known = false, nil
}

// end closes the turn of the process that is on, whatever the record names: a context that is gone has another's number in its last record.
func (t *Turns) end(s Switch) {
	if t.open {
		length := s.AtNS - t.on.AtNS
		t.ResidentNS[t.on.PID] += length
		if t.Ended != nil {
			t.Ended(t.on, length)
		}
	} else if t.Records == 1 && s.AtNS > t.beganNS {
		t.ResidentNS[s.PID] += s.AtNS - t.beganNS // the process was on when the log was opened
	}
	t.open = false
}

// Total is the residence of each process until now, also of the process that is on.
func (t *Turns) Total(clockNS int64) map[uint32]int64 {
	had := maps.Clone(t.ResidentNS)
	if t.open && clockNS > t.on.AtNS {
		had[t.on.PID] += clockNS - t.on.AtNS
	}
	return had
}

// Since is the residence of each process since the last call.
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

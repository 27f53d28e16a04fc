// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"maps"
	"slices"
	"testing"
)

const usNS = 1000

// journal plays the driver's log: each record has the next serial.
type journal struct {
	to     func(Switch)
	serial uint16
}

func (j *journal) start(pid uint32, atUS int64) {
	j.serial++
	j.to(Switch{AtNS: atUS * usNS, PID: pid, Context: pid, Serial: j.serial, Start: true})
}

func (j *journal) end(pid uint32, atUS int64) {
	j.serial++
	j.to(Switch{AtNS: atUS * usNS, PID: pid, Context: pid, Serial: j.serial, End: true})
}

func TestTurnsAreAddedUp(t *testing.T) {
	turns := NewTurns(100 * usNS)
	var lengths []int64
	turns.Ended = func(on Switch, lengthNS int64) {
		if on.PID == 8 {
			lengths = append(lengths, lengthNS/usNS)
		}
	}
	j := journal{to: turns.Take, serial: 0xfffd} // it wraps
	j.end(7, 150)                                // was on when the log was opened
	j.start(8, 160)
	j.end(9, 460) // of a context that is gone: whoever is on ends
	j.start(7, 500)
	j.start(8, 600) // nobody ended
	j.end(8, 700)
	j.start(7, 800)

	if got, want := turns.ResidentNS, map[uint32]int64{7: 150 * usNS, 8: 400 * usNS}; !maps.Equal(got, want) {
		t.Errorf("resident %v, want %v", got, want)
	}
	if !slices.Equal(lengths, []int64{300, 100}) {
		t.Errorf("turns of %v us", lengths)
	}
	if turns.Records != 7 || turns.Lost != 0 || turns.Unexpected != 1 {
		t.Errorf("%d records, %d lost, %d unexpected", turns.Records, turns.Lost, turns.Unexpected)
	}
	// The look comes first, and then an end that is older.
	before := turns.Total(900 * usNS)[7]
	j.end(7, 880)
	after := turns.Total(910 * usNS)[7]
	if before != 250*usNS || after-before != -20*usNS {
		t.Errorf("%d ns, and then %d more", before, after-before)
	}
}

func TestWhatLooksAddIsWhatWasThere(t *testing.T) {
	turns := NewTurns(0)
	j := journal{to: turns.Take}
	total := map[uint32]int64{}
	look := func(atUS int64) {
		for pid, ns := range turns.Since(atUS * usNS) {
			total[pid] += ns
		}
	}
	j.start(7, 10)
	look(100)
	look(200)
	j.end(7, 190) // older than the look
	j.start(8, 195)
	look(300)
	j.end(8, 400)
	look(500)
	if want := (map[uint32]int64{7: 180 * usNS, 8: 205 * usNS}); !maps.Equal(total, want) {
		t.Errorf("%v, want %v", total, want)
	}
}

func TestNobodyHasWhatLiesBeforeALostRecord(t *testing.T) {
	turns := NewTurns(0)
	j := journal{to: turns.Take}
	j.start(7, 0)
	turns.Since(50 * usNS)
	j.serial += 2 // an end of 7 and a start of 8 are missing
	j.end(8, 1000)
	j.start(7, 1100)
	j.to(Switch{AtNS: 1150 * usNS, Serial: j.serial + 1})
	j.serial++
	j.end(7, 1200)
	if had := turns.Since(1300 * usNS); turns.Lost != 2 || had[7] != 100*usNS || had[8] != 0 {
		t.Errorf("%d lost, had %v", turns.Lost, had)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Hold keeps a slice at its cap by its time on in each period. It goes by the slice's use, alone and beside others alike. A slice that asks for no more than
// its cap, or that has no more by its weight, is on all the time.
//
// Time that the cap allows and the slice does not use is credit. Use beyond the cap is paid back. So a cap is exact over some seconds, although a meter is
// inexact in between, and a program's work comes and goes.
type Hold struct {
	Share float64 // of 1

	credit  time.Duration // of GPU time
	held    bool          // the credit was used up and is not all back, or the slice still asks for more than its cap
	wants   float64       // of the GPU
	owed    time.Duration // time on or off that was too short for a period
	checked checked
}

// checked is the time off, and the use beyond the time on, since RanOff last returned them.
type checked struct{ off, ran time.Duration }

// NewHold is for a new slice. It is held until it was seen to use less.
func NewHold(share float64) *Hold {
	h := &Hold{Share: share, held: true, wants: 1}
	h.credit = h.most()
	return h
}

func (h *Hold) most() time.Duration {
	return min(mostCredit, time.Duration(h.Share*float64(keptCredit)))
}

// Credit is the GPU time that the slice may have at once; negative: the time that it had too much.
func (h *Hold) Credit() time.Duration { return h.credit }

// Expects is the credit after a time without a look, in which the slice used this part of the GPU.
func (h *Hold) Expects(gone time.Duration, used float64) time.Duration {
	later := *h
	later.Guess(gone, used)
	return later.credit
}

// SetShare changes the cap.
func (h *Hold) SetShare(share float64) {
	h.Share = share
	h.pass(0, 0, 0)
}

// Resume goes on from the credit that was written down, after a time without vgpud. A slice that was held then, or used about its cap, counts as having had
// the whole GPU since vgpud ended. words is the time between two such writings, so vgpud ended half of words after the last one, on average. Any other slice
// counts with its use before. Resume returns the part that it took.
func (h *Hold) Resume(credit, gone, words time.Duration, used float64) float64 {
	if credit < h.most() || used > takes*h.Share { // a slice with full credit may be held all the same, as it asks for more
		used = 1
		gone = max(0, gone-words/2)
	}
	h.credit, h.held, h.wants = credit, used == 1, used
	h.pass(gone, used, h.Share)
	return used
}

// Rest lets time pass in which the slice had no work.
func (h *Hold) Rest(gone time.Duration) {
	h.wants = 0
	h.pass(gone, 0, h.Share)
}

func (h *Hold) pass(gone time.Duration, used, allowed float64) {
	h.credit = min(h.most(), max(-mostDebt, h.credit+time.Duration((allowed-used)*float64(gone))))
	h.held = h.credit < 0 || h.held && (h.credit < h.most() || h.wants > h.Share)
}

// Look takes figures of a time: for how long the slice was on, its use, of 1, and the part of the GPU that it asks for.
func (h *Hold) Look(gone, on time.Duration, used, wants float64) {
	if gone <= 0 {
		return
	}
	part, allowed := min(1, float64(on)/float64(gone)), h.Share
	if part > allOfIt {
		allowed += heldSlack
	}
	h.wants = wants
	h.pass(gone, used, allowed)
	h.checked.off += gone - on
	h.checked.ran += time.Duration((used - part) * float64(gone))
}

// Guess is a look without a figure of the use, which is guessed.
func (h *Hold) Guess(gone time.Duration, used float64) { h.pass(gone, used, h.Share) }

// May is the part of the GPU that the slice may have from now on; 1 where it is not held.
func (h *Hold) May() float64 {
	if !h.held {
		return 1
	}
	return max(leastPart*h.Share, h.Share+float64(h.credit)/float64(paidBack))
}

// Holds says that a slice that may be on for this part of a period has to be put off in it.
func Holds(part float64, period time.Duration) bool {
	return float64(period)*(1-part) >= float64(leastOff)
}

// Next is the time on in the next period of a slice that may be on for this part; all of the period: the slice is not put off.
func (h *Hold) Next(part float64, period time.Duration) time.Duration {
	if !Holds(part, period) {
		h.owed = 0
		return period
	}
	on := h.owed + time.Duration(part*float64(period))
	h.owed = 0
	switch {
	case on < leastOn:
		h.owed = on
		return 0
	case on > period-leastOff:
		h.owed = on - period
		return period
	}
	return on
}

// RanOff is the time off, and the use beyond the time on. Both are 0 until the time off is a second, as a meter is late by a tenth of one.
func (h *Hold) RanOff() (off, ran time.Duration) {
	if h.checked.off < checkedFor {
		return 0, 0
	}
	c := h.checked
	h.checked = checked{}
	return c.off, max(0, c.ran)
}

// Period is the length of a period. calls is how many calls put off all held slices of the node. alone says that each is alone on its GPU: then periods are
// longer, as the GPU's counter has no figures of shorter times. Two calls of 0.7 ms in 50 ms are 2.8 % of a core. Up to four calls the period grows with
// their number, so the cost stays, and each cap holds over a second. With any number of calls the cost is at most 11 %.
func Period(calls int, alone bool) time.Duration {
	least := heldPeriod
	if alone {
		least = lonePeriod
	}
	return max(least, min(mostPeriod, heldPeriod*time.Duration(calls)), eachOfMany*time.Duration(calls))
}

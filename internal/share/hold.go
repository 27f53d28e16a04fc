// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// Hold keeps a slice at its cap, by for how long it is on in each period. It goes by what the slice used, alone and beside others alike: where weights leave it
// no more than its cap, or where it asks for no more, it is on all the time, and nothing is to be done.
//
// What the cap allows and was not used is credit, and what was used beyond it is paid back. So a cap is exact over some seconds whatever a meter is wrong by in
// between, and however a program's work comes and goes.
type Hold struct {
	Share float64 // of 1

	credit  time.Duration // of GPU time
	held    bool          // its credit is gone, and is not all back since, or it still asks for more than its cap
	wants   float64       // of the GPU
	owed    time.Duration // of being on, that was too short for a period of its own
	checked checked
}

// checked is for how long it was off, and how much more it used than it was on for, since somebody asked.
type checked struct{ off, ran time.Duration }

// NewHold is for a slice that nobody knows yet. It is held until it was seen to use less.
func NewHold(share float64) *Hold {
	h := &Hold{Share: share, held: true, wants: 1}
	h.credit = h.most()
	return h
}

func (h *Hold) most() time.Duration {
	return min(mostCredit, time.Duration(h.Share*float64(keptCredit)))
}

// Credit is what it may have at once; negative: what it had too much.
func (h *Hold) Credit() time.Duration { return h.credit }

// Expects is what credit there is after a time in which nobody looked, and it used this part of the GPU.
func (h *Hold) Expects(gone time.Duration, used float64) time.Duration {
	later := *h
	later.Guess(gone, used)
	return later.credit
}

// SetShare is for a cap that was changed.
func (h *Hold) SetShare(share float64) {
	h.Share = share
	h.pass(0, 0, 0)
}

// Resume goes on from the credit that was written down, after a time in which nothing was counted. A slice that was held, or used about its cap, is taken to have
// had all of the GPU since it was let on, half the time between two such words on average; another one, what it used before. It returns what it took.
func (h *Hold) Resume(credit, gone, words time.Duration, used float64) float64 {
	if credit < h.most() || used > takes*h.Share { // with its credit full it may be held all the same, as it asks for more
		used = 1
		gone = max(0, gone-words/2)
	}
	h.credit, h.held, h.wants = credit, used == 1, used
	h.pass(gone, used, h.Share)
	return used
}

// Rest lets time pass in which it had no work.
func (h *Hold) Rest(gone time.Duration) {
	h.wants = 0
	h.pass(gone, 0, h.Share)
}

func (h *Hold) pass(gone time.Duration, used, allowed float64) {
	h.credit = min(h.most(), max(-mostDebt, h.credit+time.Duration((allowed-used)*float64(gone))))
	h.held = h.credit < 0 || h.held && (h.credit < h.most() || h.wants > h.Share)
}

// Look takes what it used of a time, of 1, for how long it was on, and how much of the GPU it asks for.
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

// Guess is a look at which nobody knows what it used.
func (h *Hold) Guess(gone time.Duration, used float64) { h.pass(gone, used, h.Share) }

// May is which part of the GPU it may have from now on; 1 where it is not held.
func (h *Hold) May() float64 {
	if !h.held {
		return 1
	}
	return max(leastPart*h.Share, h.Share+float64(h.credit)/float64(paidBack))
}

// Holds says that one who may be on for this part of periods of this length has to be kept off.
func Holds(part float64, period time.Duration) bool {
	return float64(period)*(1-part) >= float64(leastOff)
}

// Next is for how long one who may be on for a part of the next period is; all of it: it is not kept off.
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

// RanOff is for how long it was kept off, and how much more it used than it was on for; nothing before that is a second. A meter lags behind by a tenth of one.
func (h *Hold) RanOff() (off, ran time.Duration) {
	if h.checked.off < checkedFor {
		return 0, 0
	}
	c := h.checked
	h.checked = checked{}
	return c.off, max(0, c.ran)
}

// Period is how long periods are where so many calls take all off, on the whole node, who are held; alone, where nobody else is on their GPUs: a GPU's counter
// says nothing of less than that. Two calls of 0.7 ms in 50 ms are 2.8 % of a core; it stays that for four, so that the cap of each holds over a second, and
// never is more than 11 % however many channels a job has.
func Period(calls int, alone bool) time.Duration {
	least := heldPeriod
	if alone {
		least = lonePeriod
	}
	return max(least, min(mostPeriod, heldPeriod*time.Duration(calls)), eachOfMany*time.Duration(calls))
}

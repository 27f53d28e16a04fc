// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"math"
	"time"
)

// offs are the times for which a process was kept off, by the GPU's clock.
type offs struct {
	times []span
	off   time.Duration // in all, since the last RanOff
	ran   time.Duration
}

type span struct{ fromNS, untilNS int64 }

const notYet = math.MaxInt64 // is a span over

// Off records that all channels of a process are off, or on again, from that time of the GPU's clock on.
func (m *Meter) Off(pid uint32, off bool, atNS int64) {
	o := m.offs[pid]
	if o == nil {
		o = &offs{}
		m.offs[pid] = o
	}
	if last := len(o.times) - 1; last >= 0 && o.times[last].untilNS == notYet {
		o.off += time.Duration(atNS - o.times[last].fromNS)
		o.times[last].untilNS = atNS
	}
	if off {
		o.times = append(o.times, span{atNS, notYet})
	}
}

// RanOff is for how long a process was off since the last call, and how long its turns took that began meanwhile. A process that is off may stay resident, but
// begins no turn.
func (m *Meter) RanOff(pid uint32) (off, ran time.Duration) {
	o := m.offs[pid]
	if o == nil {
		return 0, 0
	}
	off, ran = o.off, o.ran
	o.off, o.ran = 0, 0
	return off, ran
}

// Overran says whether most of a process's turns were longer than its slice, since the last call.
func (m *Meter) Overran(pid uint32) bool {
	p := m.seen[pid]
	if p == nil {
		return false
	}
	most := 2*p.asked.over > p.asked.cut+p.asked.left
	p.asked = turnCount{}
	return most
}

// Cut is how many of a process's turns its time slice has ended, since the last Overran.
func (m *Meter) Cut(pid uint32) int {
	if p := m.seen[pid]; p != nil {
		return p.asked.cut
	}
	return 0
}

// take looks whether a turn began in a time in which its process was off.
func (o *offs) take(startNS, endNS int64) {
	for _, s := range o.times {
		if startNS > s.fromNS+int64(clocksDiffer) && startNS < s.untilNS-int64(clocksDiffer) {
			o.ran += time.Duration(min(endNS, s.untilNS) - startNS)
		}
	}
}

// stopped says whether a turn ended because its process was put off.
func (o *offs) stopped(startNS, endNS int64) bool {
	for _, s := range o.times {
		if startNS <= s.fromNS && endNS > s.fromNS-int64(clocksDiffer) {
			return true
		}
	}
	return false
}

// since says whether it was off at some time from there on.
func (o *offs) since(atNS int64) bool {
	last := len(o.times) - 1
	return last >= 0 && o.times[last].untilNS > atNS
}

// letItsTurnPass says that a process was on before it was put off, for long enough to begin something, and did not.
func (o *offs) letItsTurnPass(contexts map[uint32]int64) bool {
	last := len(o.times) - 1
	if last < 1 || o.times[last].fromNS-o.times[last-1].untilNS < int64(leastTurn) {
		return false
	}
	for _, atNS := range contexts {
		if atNS > o.times[last-1].untilNS {
			return false
		}
	}
	return true
}

// onSince is when a process was put on again.
func (m *Meter) onSince(pid uint32) int64 {
	if o := m.offs[pid]; o != nil && len(o.times) > 0 {
		return o.times[len(o.times)-1].untilNS
	}
	return 0
}

// forget drops times off that no later record can be of.
func (o *offs) forget(clockNS int64) (empty bool) {
	for len(o.times) > 0 && clockNS-int64(late) > o.times[0].untilNS {
		o.times = o.times[1:]
	}
	return len(o.times) == 0
}

// idles adds for how long a process was resident and off. An end may be older than the last look.
func (p *process) idles(o *offs, startNS, endNS int64) {
	from := max(startNS, p.seenNS)
	if endNS >= from {
		p.idle += o.within(from, endNS)
	} else if p.seenNS > startNS {
		p.idle -= o.within(endNS, p.seenNS)
	}
	p.seenNS = endNS
}

// within is for how long it was off there.
func (o *offs) within(fromNS, untilNS int64) (off time.Duration) {
	for _, s := range o.times {
		off += time.Duration(max(0, min(s.untilNS, untilNS)-max(s.fromNS, fromNS)))
	}
	return off
}

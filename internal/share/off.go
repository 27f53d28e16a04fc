// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// offs are the times for which a process was kept off, by the GPU's clock.
type offs struct {
	times []span
	off   time.Duration // in all, since it was asked
	ran   time.Duration
}

type span struct {
	fromNS, untilNS int64 // untilNS is 0 while it is off
}

const (
	clocksDiffer = time.Millisecond // a call's time is read around it, and what runs leaves a moment later
	late         = 2 * time.Second  // a record comes at the latest
)

// Off says that all channels of a process are off, or on again, from that time of the GPU's clock on.
func (m *Meter) Off(pid uint32, off bool, atNS int64) {
	o := m.offs[pid]
	if o == nil {
		o = &offs{}
		m.offs[pid] = o
	}
	if last := len(o.times) - 1; last >= 0 && o.times[last].untilNS == 0 {
		o.off += time.Duration(atNS - o.times[last].fromNS)
		o.times[last].untilNS = atNS
	}
	if off {
		o.times = append(o.times, span{fromNS: atNS})
	}
}

// RanOff is for how long a process was kept off since this was asked last, and how long its turns took that began meanwhile. One that is off
// may stay resident, but does not begin.
func (m *Meter) RanOff(pid uint32) (off, ran time.Duration) {
	o := m.offs[pid]
	if o == nil {
		return 0, 0
	}
	off, ran = o.off, o.ran
	o.off, o.ran = 0, 0
	return off, ran
}

// take looks whether a turn began in a time in which its process was off.
func (o *offs) take(startNS, endNS int64) {
	for _, s := range o.times {
		if startNS > s.fromNS+int64(clocksDiffer) && (s.untilNS == 0 || startNS < s.untilNS-int64(clocksDiffer)) {
			if s.untilNS != 0 {
				endNS = min(endNS, s.untilNS)
			}
			o.ran += time.Duration(endNS - startNS)
		}
	}
}

// since says whether it was off at some time from there on.
func (o *offs) since(atNS int64) bool {
	last := len(o.times) - 1
	return last >= 0 && (o.times[last].untilNS == 0 || o.times[last].untilNS > atNS)
}

// onSince is when a process was put on again.
func (m *Meter) onSince(pid uint32) int64 {
	if o := m.offs[pid]; o != nil && len(o.times) > 0 {
		return o.times[len(o.times)-1].untilNS
	}
	return 0
}

// forget drops what no record can be of any more.
func (o *offs) forget(nowNS int64) (empty bool) {
	for len(o.times) > 0 && o.times[0].untilNS != 0 && nowNS-o.times[0].untilNS > int64(late) {
		o.times = o.times[1:]
	}
	return len(o.times) == 0
}

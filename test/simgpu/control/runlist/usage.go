// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package runlist

const (
	// BucketNS is what NVML's samples of use are long.
	BucketNS = 200_000_000
	buckets  = 128
	// moveNS is how often the counter moves that NVML's GPM reads.
	moveNS = 100_000_000
)

// Usage is for how long the GPU was busy, and for whom.
type Usage struct {
	activeNS         int64 // kernels and switches
	shownNS, shownAt int64 // the same where GPM's counter stands
	ring             [buckets]bucket
	busyNS           map[int]int64 // of processes
}

type bucket struct {
	number int64
	busyNS int64
	ofPID  map[int]int64
}

// count adds what was busy: a group's kernel, or a switch, which is nobody's.
func (u *Usage) count(from, to int64, g *Group) {
	for from < to {
		end := min(to, (from/moveNS+1)*moveNS)
		u.pass(end - 1)
		u.activeNS += end - from
		u.pass(end)
		u.book(from, end, g)
		from = end
	}
}

// pass moves GPM's counter on where its moment has come.
func (u *Usage) pass(to int64) {
	if at := to / moveNS * moveNS; at > u.shownAt {
		u.shownNS, u.shownAt = u.activeNS, at
	}
}

func (u *Usage) book(from, to int64, g *Group) {
	number := from / BucketNS
	b := &u.ring[number%buckets]
	if b.number != number || b.ofPID == nil {
		*b = bucket{number: number, ofPID: map[int]int64{}}
	}
	b.busyNS += to - from
	if g == nil {
		return
	}
	b.ofPID[g.PID] += to - from
	if u.busyNS == nil {
		u.busyNS = map[int]int64{}
	}
	u.busyNS[g.PID] += to - from
}

// InBucket is what of a bucket was busy with a process's kernels; with 0 with anybody's, or with switches.
func (u *Usage) InBucket(number int64, pid int) int64 {
	b := &u.ring[number%buckets]
	if b.number != number {
		return 0
	}
	if pid == 0 {
		return b.busyNS
	}
	return b.ofPID[pid]
}

// Active is where GPM's counter stands, and since when.
func (u *Usage) Active() (ns, atNS int64) { return u.shownNS, u.shownAt }

// BusyOf is the GPU time of a process until now.
func (u *Usage) BusyOf(pid int) int64 { return u.busyNS[pid] }

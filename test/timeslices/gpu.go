// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package timeslices plays a GPU's own scheduler: channel groups take turns by time slices, a switch costs time, and a group can be kept
// off from outside. It has no clock and no driver; the same load gives the same figures, and its test holds them to a machine's.
package timeslices

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

// Group is one channel group, which is one context of one process.
type Group struct {
	Load  Load
	Slice time.Duration
	Off   bool
	PID   uint32 // of its process
	Cheat Cheat

	Busy  time.Duration // what its kernels ran
	Turns int
	Cuts  int             // turns that its slice ended
	Kept  int             // of these: those that had to wait for a piece's end
	Waits []time.Duration // from a step's start to its end

	left  time.Duration // of the step that runs or waits
	asked time.Duration // when that step came
	next  time.Duration // when the next step comes; never while one is there
}

// Cheat is what a program does to have more than its share.
type Cheat struct {
	Sets    time.Duration // its own slice, again and again
	Enables bool          // itself, again and again
	Piece   time.Duration // of its work: it is cut between these alone
}

// Load is what a process does: steps of work, and the host's time between them.
// A process that always has work has no Host.
type Load struct {
	Work, Host time.Duration
	Varied     bool // Host is its mean: half of it to one and a half
}

// Change is what passes without a kernel: when another group comes on, and
// before that, if the one that leaves is cut in its work.
type Change struct{ Load, Save time.Duration }

// GPU has groups that take turns.
type GPU struct {
	Groups []*Group
	Change Change
	Now    time.Duration
	Active time.Duration      // with work, or changing
	Log    func(share.Switch) // takes a record of each change, if set

	dice  *rand.Rand
	on    int // the resident group, or -1
	began time.Duration
	count uint16 // of records
}

const never = time.Duration(math.MaxInt64)

// NewGPU has nobody resident.
func NewGPU(change Change, groups ...*Group) *GPU {
	for _, g := range groups {
		g.left = g.Load.Work
		g.next = never
	}
	return &GPU{Groups: groups, Change: change, on: -1, dice: rand.New(rand.NewPCG(7, 7))}
}

// Run goes on until a moment, or until the change is done that it meets.
func (g *GPU) Run(until time.Duration) {
	for g.Now < until {
		g.wakeUp()
		if next := g.nextReady(); g.mustLeave(next) {
			g.changeTo(next)
			continue
		}
		g.goOn(until)
	}
}

// A process is resident for this much longer than it works, by the machine's log: from its start until its work goes on, and where it is cut until it
// is saved.
const startsEarly, savedLate = 60 * time.Microsecond, 85 * time.Microsecond

func (g *GPU) changeTo(next int) {
	from := g.Now
	leaves := from
	if g.on >= 0 && g.Groups[g.on].left > 0 {
		g.Groups[g.on].Cuts++
		if g.Groups[g.on].Cheat.Piece > 0 {
			g.Groups[g.on].Kept++
		}
		g.Now += g.Change.Save
		leaves += savedLate
	}
	if g.on >= 0 {
		g.record(leaves, share.Switch{PID: g.Groups[g.on].PID, Context: uint32(g.on), End: true})
	}
	g.Now += g.Change.Load
	g.Active += g.Now - from
	g.on, g.began = next, g.Now
	g.Groups[next].Turns++
	g.record(g.Now-startsEarly, share.Switch{PID: g.Groups[next].PID, Context: uint32(next), Start: true})
}

func (g *GPU) record(at time.Duration, s share.Switch) {
	if g.Log != nil {
		g.count++
		s.AtNS, s.Serial = int64(at), g.count
		g.Log(s)
	}
}

// goOn runs the resident group until it is done, its slice ends, or something comes.
func (g *GPU) goOn(until time.Duration) {
	step := min(until, g.nextArrival()) - g.Now
	if g.on < 0 || !g.Groups[g.on].ready() {
		g.Now += step
		return
	}
	now := g.Groups[g.on]
	step = min(step, now.left)
	if g.nextReady() >= 0 {
		step = min(step, g.sliceLeft())
	}
	now.left -= step
	now.Busy += step
	g.Active += step
	g.Now += step
	if now.left == 0 {
		now.finish(g.Now, g.dice)
	}
}

func (g *Group) ready() bool { return (!g.Off || g.Cheat.Enables) && g.left > 0 }

func (g *Group) finish(now time.Duration, dice *rand.Rand) {
	g.Waits = append(g.Waits, now-g.asked)
	host := g.Load.Host
	if g.Load.Varied {
		host = time.Duration(float64(host) * (0.5 + dice.Float64()))
	}
	g.next = now + host
}

func (g *GPU) wakeUp() {
	for _, x := range g.Groups {
		if x.next <= g.Now {
			x.left, x.asked, x.next = x.Load.Work, x.next, never
		}
	}
}

func (g *GPU) nextArrival() time.Duration {
	first := never
	for _, x := range g.Groups {
		first = min(first, x.next)
	}
	return first
}

// nextReady is the first group behind the resident one that has work, or -1.
func (g *GPU) nextReady() int {
	n := len(g.Groups)
	for i := 1; i <= n; i++ {
		if k := (g.on + i + n) % n; k != g.on && g.Groups[k].ready() {
			return k
		}
	}
	return -1
}

func (g *GPU) mustLeave(next int) bool {
	if next < 0 {
		return false
	}
	return g.on < 0 || !g.Groups[g.on].ready() || g.sliceLeft() <= 0
}

// sliceLeft is until the slice ends. One who is alone has slice after slice, so
// a neighbour that comes waits for the rest of the one that runs.
func (g *GPU) sliceLeft() time.Duration {
	x := g.Groups[g.on]
	slice := x.Slice
	if x.Cheat.Sets > 0 {
		slice = x.Cheat.Sets
	}
	gone := g.Now - g.began
	if x.Cheat.Piece > 0 {
		return x.pieceLeft(slice - gone)
	}
	if gone > slice {
		g.began += gone / slice * slice
		gone = g.Now - g.began
	}
	return slice - gone
}

// pieceLeft is until the piece is done in which the slice ends.
func (g *Group) pieceLeft(left time.Duration) time.Duration {
	done := g.Load.Work - g.left
	piece := g.Cheat.Piece
	return (done+max(0, left)+piece-1)/piece*piece - done
}

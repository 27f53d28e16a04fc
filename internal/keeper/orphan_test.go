// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
)

// endsLeaving has job 1's process end, and a child of it go on with its descriptors.
func (m *machine) endsLeaving(stay ...int) {
	m.killed[0] = true
	m.strange[100] = 1 // the driver names it all the same
	m.heirs = []Heir{{Process: Process{Process: audit.Process{PID: 150, StartTicks: m.start(150)}, Job: 1, UID: 1001}, FDs: []int{7, 12}}}
	m.members(stay...)
}

// What a process had that has ended is its job's for as long as a child of it has the descriptors.
func TestAChildHasWhatItsParentLeft(t *testing.T) {
	m := two(t)
	m.members(0, 1)
	m.play(2 * time.Second)
	m.endsLeaving(1)
	m.play(2 * time.Second)
	before := m.time(1).BusyNs
	had := m.had(5 * time.Second)
	near(t, "it had", had[0], 30*0.97, 2)
	near(t, "counted of it", 100*float64(m.time(1).BusyNs-before)/float64(5*time.Second), had[0], 1)
	if m.time(1).Flags&ledger.TimeUnnamed != 0 {
		t.Error("its handles are not known any more")
	}
	m.gpu.Groups[0].Cheat.Sets = time.Second
	m.k.Step = func(p Process, _ bool) (Frozen, error) {
		if p.PID != 150 {
			t.Errorf("process %d is to be frozen", p.PID)
		}
		return Frozen{Job: p.Job, Step: "0"}, nil
	}
	caught(t, m, 3*time.Second)
}

// A cap holds what a child goes on with.
func TestACapHoldsWhatAParentLeft(t *testing.T) {
	m := played(t, []int{30}, always(2*ms))
	m.node.GPUs[0].Slices[0].Elastic = false
	m.members(0)
	m.play(2 * time.Second)
	m.endsLeaving()
	m.play(2 * time.Second)
	near(t, "it had", m.had(5 * time.Second)[0], 30, 1)
}

// Of whom nothing was known, as it never had the library, it is seen that its job has more than its part.
func TestAChildThatHasMoreThanItsPartIsFrozen(t *testing.T) {
	m := two(t)
	m.members(1)
	m.play(time.Second)
	m.gpu.Groups[0].Slice = time.Second
	m.endsLeaving(1)
	caught(t, m, 5*time.Second)
}

// A program that is on the GPU for itself is nobody's heir, though nobody else has the control device open: who has descriptors of a process that
// has ended can keep them in a socket.
func TestANeighbourIsNotTakenForAnHeir(t *testing.T) {
	m := two(t)
	m.members(1)
	m.play(time.Second)
	m.gpu.Groups[0].Slice = time.Second
	m.endsLeaving(1)
	m.heirs = []Heir{{Process: Process{Process: audit.Process{PID: 101, StartTicks: m.start(101)}, Job: 2, UID: 1002}, FDs: []int{9}, Other: true}}
	m.play(10 * time.Second)
	if page := m.time(2); len(m.answers) > 0 || page.Verdict != 0 || page.Flags&ledger.TimeUnnamed != 0 {
		t.Errorf("the neighbour is taken for it: %v, %+v", m.answers, page)
	}
}

// Children of a program that was killed are left alone while nothing of it is at work.
func TestIdleChildrenAreLeftAlone(t *testing.T) {
	m := two(t)
	m.gpu.Groups[0].Off = true
	m.members(1)
	m.play(time.Second)
	m.endsLeaving(1)
	m.play(20 * time.Second)
	if len(m.answers) > 0 {
		t.Error("somebody was to be frozen")
	}
	delete(m.strange, 100)
	m.play(2 * time.Second)
	if len(m.k.owners) != 1 {
		t.Errorf("%d processes are followed", len(m.k.owners))
	}
}

// Nobody is taken for the heir of another job's process.
func TestHeirsAreOfTheJobThatIsKnown(t *testing.T) {
	m := two(t)
	m.members(0, 1)
	heir := func(pid int, job uint32, other bool) Heir {
		return Heir{Process: Process{Process: audit.Process{PID: pid}, Job: job}, Other: other}
	}
	for _, c := range []struct {
		job   uint32
		heirs []Heir
		want  int
	}{
		{1, []Heir{heir(150, 2, false), heir(151, 1, true)}, 151},
		{1, []Heir{heir(150, 2, false)}, 0},
		{0, []Heir{heir(150, 2, true), heir(151, 1, false)}, 151}, // the other one has its parent's, which is alive
		{0, []Heir{heir(150, 2, false), heir(151, 1, false)}, 0},  // nobody can say
		{0, []Heir{heir(150, 9, false)}, 0},                       // it has no slice here
		{0, []Heir{heir(150, 2, true)}, 0},                        // it has its own, or its parent's, and those of the other may be in a socket
	} {
		if found, _ := heirOf(m.k.gpus[uuid], c.job, c.heirs); found.PID != c.want {
			t.Errorf("of job %d: %d, want %d", c.job, found.PID, c.want)
		}
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"os"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// Programs of a fifth of a second, one after the other, beside one that always has work: what each did is counted, and for its slice.
func TestShortProgramsAreCounted(t *testing.T) {
	m := played(t, []int{50, 50}, always(2*ms), always(2*ms))
	m.members(0)
	m.gpu.Groups[1].Off = true // not there
	m.play(2 * lateFor)
	first, short, had := m.time(1), m.time(2), [2]time.Duration{m.gpu.Groups[0].Busy, m.gpu.Groups[1].Busy}
	for range 20 {
		m.gpu.Groups[1].Off = false
		m.members(0, 1)
		m.play(200 * ms)
		m.gpu.Groups[1].Off = true
		m.members(0)
		m.play(130 * ms)
	}
	m.play(2 * lateFor)
	for i, before := range []uint64{first.BusyNs, short.BusyNs} {
		ran := m.gpu.Groups[i].Busy - had[i]
		near(t, "counted of what ran, percent", 100*float64(m.time(uint32(i+1)).BusyNs-before)/float64(ran), 100, 4)
	}
	if unknown := time.Duration(m.time(1).UnknownNs - first.UnknownNs); unknown > 200*ms {
		t.Errorf("%s are unknown", unknown)
	}
}

// Whoever lost the record of who is off has left somebody off: the next loop lets all on that were there before it.
func TestALostRecordLeavesNobodyOff(t *testing.T) {
	m := played(t, []int{50, 50}, always(2*ms), always(2*ms))
	m.members(0, 1)
	m.play(time.Second)
	m.gpu.Groups[1].Off = true
	if err := os.RemoveAll(m.run.VgpudOff()); err != nil {
		t.Fatal(err)
	}
	m.open = 0
	m.begin()
	m.members(0, 1)
	if m.gpu.Groups[1].Off {
		t.Error("it is off")
	}
	calls := m.calls["disable"]
	m.started = m.gpu.Now + time.Second // others, that come later
	m.members(0, 1)
	if m.calls["disable"] != calls {
		t.Error("who came later was let on, which it was")
	}
	if len(m.k.asking) > 0 {
		t.Error("who came later is to be frozen")
	}
}

// A client's number that comes back as another's is not acted on any more.
func TestWhatIsNotTheirsAnyMoreIsLeftAlone(t *testing.T) {
	m := played(t, []int{50, 50}, always(2*ms), always(2*ms))
	m.members(0, 1)
	m.play(2 * lateFor)
	m.stolen = 101
	m.play(2 * lateFor)
	for _, o := range m.k.owners {
		if want := map[int]int{100: 1, 101: 0}[o.PID]; len(o.groups) != want {
			t.Errorf("process %d has %d groups, want %d", o.PID, len(o.groups), want)
		}
	}
}

// Nobody is taken off by a number that is another's: each group that is to be off was its process's a second ago.
func TestAnothersNumberIsNotTakenOff(t *testing.T) {
	m := played(t, []int{30}, always(2*ms))
	m.node.GPUs[0].Slices[0].Elastic = false
	m.members(0)
	p := &m.node.Processes[0]
	for i := range uint32(20) { // more than the judge looks at in the time
		more := p.Groups[0]
		more.Client, more.Group = 2000+i, secondGroup
		p.Groups = append(p.Groups, more)
	}
	m.take()
	m.play(3 * time.Second)
	const theirs = 2019
	m.taken = map[uint32]bool{theirs: true}
	m.play(verifyEach)
	m.off = nil
	m.play(time.Second)
	if len(m.off) == 0 || m.off[theirs] {
		t.Errorf("taken off: %v", m.off)
	}
}

// A step that was frozen when vgpud died goes on then. That was no whole time, and its page does not say that it is frozen for ever.
func TestAFreezeThatWasCutShortDoesNotCount(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	m.members(0, 1)
	m.play(time.Second)
	m.gpu.Groups[0].Cheat.Sets = time.Second
	caught(t, m, 3*time.Second)
	m.gpu.Groups[0].Cheat.Sets = 0
	m.open = 0
	m.begin()
	m.members(0, 1)
	m.play(time.Second)
	if page := m.time(1); page.Frozen != 0 || page.Flags&ledger.TimeFrozen != 0 {
		t.Errorf("its page says %+v", page)
	}
}

// watched counts how often the loop has groups pages watched.
type watched struct{ times chan []uint32 }

func (w watched) Watch(jobs []uint32) error { w.times <- jobs; return nil }
func (w watched) C() <-chan struct{}        { return nil }
func (w watched) Close()                    {}

// A job's page may be made after its slices stand in the state file: it is watched with a later look too, though the jobs are the same.
func TestAPageThatComesLaterIsWatched(t *testing.T) {
	m := played(t, []int{30})
	w, looks := watched{make(chan []uint32, 8)}, 0
	parts := m.k.Parts
	parts.Changes = func() (Changes, error) { return w, nil }
	parts.Sampler = func() (Sampler, error) { return nil, os.ErrNotExist }
	parts.Node = func() (Node, error) {
		if looks++; looks == 1 {
			return m.node, os.ErrNotExist
		}
		return m.node, nil
	}
	stop, ended := make(chan struct{}), make(chan error)
	go func() { ended <- Run(stop, nil, parts) }()
	for range 2 {
		select {
		case jobs := <-w.times:
			if len(jobs) != 1 || jobs[0] != 1 {
				t.Errorf("watched: %v", jobs)
			}
		case <-time.After(time.Minute):
			t.Error("not watched")
		}
	}
	close(stop)
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// What was found for one that sleeps between its steps is not to be found anew after each death.
func TestWhoSleepsKeepsWhatWasFoundForIt(t *testing.T) {
	m := played(t, []int{50, 50}, timeslices.Load{Work: ms, Host: 100 * us}, always(2*ms))
	m.members(0, 1)
	m.play(8 * time.Second)
	before := m.gpu.Groups[1].Slice
	if before >= 5*ms {
		t.Fatalf("beside one that sleeps the slice is %s", before)
	}
	m.open = 0
	m.begin()
	m.members(0, 1)
	m.play(100 * ms)
	near(t, "the slice afterwards, us", float64(m.gpu.Groups[1].Slice/us), float64(before/us), float64(before/us)/4)
}

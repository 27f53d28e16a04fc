// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

func always(work time.Duration) timeslices.Load { return timeslices.Load{Work: work} }

func near(t *testing.T, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got-want) > by {
		t.Errorf("%s: %.1f, want %.1f", what, got, want)
	}
}

// Of tenants that always have work each has what its share is of all shares, and its page says so.
func TestSharesAreKeptAndCounted(t *testing.T) {
	for _, percents := range [][]int{{30, 70}, {50, 50}, {20, 30, 50}, {25, 25, 25, 25}} {
		var loads []timeslices.Load
		for range percents {
			loads = append(loads, always(2*ms))
		}
		m := played(t, percents, loads...)
		var all []int
		for i := range percents {
			all = append(all, i)
		}
		m.members(all...)
		m.play(2 * time.Second)
		var before []ledger.TimeDevice
		for i := range percents {
			before = append(before, m.time(uint32(i+1)))
		}
		had, sum := m.had(5*time.Second), 0.0
		for _, h := range had {
			sum += h
		}
		for i, percent := range percents {
			near(t, "share", 100*had[i]/sum, float64(percent), 1)
			now := m.time(uint32(i + 1))
			near(t, "counted", float64(now.BusyNs-before[i].BusyNs)/float64(5*time.Second)*100, had[i], 1.5)
			near(t, "said", float64(now.Percent)/100, had[i], 3)
			if now.UnknownNs != 0 || now.SliceUs == 0 || now.Flags != 0 {
				t.Errorf("%+v", now)
			}
		}
		if m.calls["disable"] != 0 {
			t.Errorf("%d calls that disable, and nobody sleeps", m.calls["disable"])
		}
	}
}

// Nothing is open and nothing is to be done where nobody is at work; one alone needs no file of the GPU's.
func TestNothingIsOpenForNobody(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	is := func(what string, open int, next bool) {
		t.Helper()
		if m.open != open || (m.k.next() != 0) != next {
			t.Errorf("%s: %d files are open, the next is at %v", what, m.open, m.k.next())
		}
	}
	m.members()
	is("nobody", 0, false)
	if m.time(1).LookedNs == 0 {
		t.Error("a slice that came was not looked at")
	}
	m.members(0)
	m.play(time.Second)
	is("one", 1, true)
	m.members(0, 1)
	m.play(time.Second)
	is("two", 3, true)
	m.members(1)
	m.play(2 * lateFor)
	is("one again", 1, true)
	m.members()
	m.play(2 * lateFor)
	is("nobody again", 0, false)
	if m.time(1).Flags&ledger.TimeIdle == 0 {
		t.Error("no word of a slice without work")
	}
	m.node = Node{}
	m.take()
	is("no slice", 0, false)
	if len(m.k.pages) != 0 || len(m.k.gpus) != 0 {
		t.Error("something of a job that is gone is kept")
	}
}

// Who is alone has what NVML says.
func TestOneAloneIsCountedByTheGPU(t *testing.T) {
	m := played(t, []int{30, 70}, timeslices.Load{Work: ms, Host: ms}, always(2*ms))
	m.gpu.Groups[1].Off = true
	m.members(0)
	m.play(time.Second)
	before := m.time(1)
	had := m.had(4 * time.Second)
	near(t, "counted", float64(m.time(1).BusyNs-before.BusyNs)/float64(4*time.Second)*100, had[0], 1)
	if m.calls["disable"] != 0 {
		t.Error("who is alone was kept off")
	}
}

// Who sleeps between its steps has its share beside two that always have work, by turns; when it is gone they are on.
func TestTurnsByDisabling(t *testing.T) {
	m := played(t, []int{20, 30, 50}, timeslices.Load{Work: ms, Host: ms}, always(ms), always(ms))
	m.members(0, 1, 2)
	m.play(8 * time.Second)
	had := m.had(6 * time.Second)
	for i, want := range []float64{20.2, 27.1, 44.9} {
		near(t, "with turns", had[i], want, 3)
	}
	if len(m.k.gpus[uuid].turns.sets) != 2 || m.calls["disable"] == 0 {
		t.Fatal("nobody took turns")
	}
	m.recordIs(true)
	m.members(1, 2)
	m.play(2 * time.Second)
	for i := range 2 {
		if m.gpu.Groups[i+1].Off {
			t.Errorf("group %d is off", i+1)
		}
	}
	m.recordIs(false)
	if m.beats[len(m.beats)-1] != byte(Working) {
		t.Error("the supervisor waits for a word all the time")
	}
}

// A loop that ends lets on whom it kept off; one that dies leaves a record by which somebody else does.
func TestWhoIsOffIsOnAgain(t *testing.T) {
	off := func(t *testing.T) *machine {
		m := played(t, []int{20, 30, 50}, timeslices.Load{Work: ms, Host: ms}, always(ms), always(ms))
		m.members(0, 1, 2)
		m.play(8 * time.Second)
		if !m.gpu.Groups[1].Off && !m.gpu.Groups[2].Off {
			t.Fatal("nobody is off")
		}
		return m
	}
	on := func(t *testing.T, m *machine) {
		t.Helper()
		for i, g := range m.gpu.Groups {
			if g.Off {
				t.Errorf("group %d is off", i)
			}
		}
		m.recordIs(false)
	}
	t.Run("ends", func(t *testing.T) {
		m := off(t)
		if err := m.k.end(); err != nil {
			t.Fatal(err)
		}
		on(t, m)
		if m.open != 0 {
			t.Errorf("%d files are open", m.open)
		}
	})
	t.Run("dies", func(t *testing.T) {
		m := off(t)
		enabler := NewEnabler(func() (Driver, error) { return fakeDriver{m}, nil })
		if err := Undo(m.run.VgpudOff(), boot, enabler); err != nil {
			t.Fatal(err)
		}
		on(t, m)
	})
	t.Run("in another boot", func(t *testing.T) {
		m := off(t)
		if err := Undo(m.run.VgpudOff(), "another boot", NewEnabler(func() (Driver, error) { return fakeDriver{m}, nil })); err != nil {
			t.Fatal(err)
		}
		if !m.gpu.Groups[1].Off && !m.gpu.Groups[2].Off {
			t.Error("it was believed")
		}
		m.recordIs(false)
	})
	t.Run("the driver does not answer", func(t *testing.T) {
		m := off(t)
		if err := Undo(m.run.VgpudOff(), boot, NewEnabler(func() (Driver, error) { return nil, errors.New("busy") })); err == nil {
			t.Error("no word of it")
		}
		m.recordIs(true)
		if err := Undo(m.run.VgpudOff(), boot, NewEnabler(func() (Driver, error) { return fakeDriver{m}, nil })); err != nil {
			t.Fatal(err)
		}
		on(t, m)
	})
}

// A new loop counts on from where the page is, and says of the time between that nobody counted.
func TestCountersGoOn(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	m.members(0, 1)
	m.play(3 * time.Second)
	before := m.time(1)
	m.gpu.Run(m.gpu.Now + 300*ms)
	m.open = 0
	m.begin()
	m.members(0, 1)
	m.play(2 * time.Second)
	after := m.time(1)
	if after.BusyNs < before.BusyNs {
		t.Errorf("%d before, %d after", before.BusyNs, after.BusyNs)
	}
	near(t, "counted after it, percent", float64(after.BusyNs-before.BusyNs)/float64(2*time.Second)*100, 29, 2)
	near(t, "unknown, ms", float64(after.UnknownNs)/float64(ms), 300+100, 110) // up to one look's time before
	m.members()
	m.play(2 * lateFor)
	m.gpu.Run(m.gpu.Now + 5*time.Second) // without work
	m.open, m.started = 0, m.gpu.Now-ms
	m.begin()
	m.members(0, 1)
	m.play(time.Second)
	if more := time.Duration(m.time(1).UnknownNs - after.UnknownNs); more > 100*ms {
		t.Errorf("%s of a time without work are unknown", more)
	}
}

// A slice that had work before vgpud was there has time that nobody counted.
func TestWorkBeforeTheFirstLookIsUnknown(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	m.gpu.Run(m.gpu.Now + 2*time.Second)
	m.members(0, 1)
	near(t, "unknown, ms", float64(m.time(1).UnknownNs)/float64(ms), 2000, 10)
}

// All calls together take no more than two in a hundred of a core, however often the members change.
func TestCallsStayWithinTheBudget(t *testing.T) {
	m := played(t, []int{10, 20, 30, 40}, always(ms), always(ms), timeslices.Load{Work: ms, Host: ms}, timeslices.Load{Work: ms, Host: 100 * us})
	m.members(0, 1, 2, 3)
	m.play(5 * time.Second)
	clear(m.calls)
	m.play(10 * time.Second)
	took := time.Duration(m.calls["disable"])*700*us + time.Duration(m.calls["slice"])*300*us
	if took > 200*ms {
		t.Errorf("%v took %s in 10 s", m.calls, took)
	}
}

// What is killed writes nothing down: the loop sees its end.
func TestAKilledProcessIsForgotten(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	m.members(0, 1)
	m.play(time.Second)
	m.killed[0], m.gpu.Groups[0].Off = true, true
	m.play(time.Second)
	if m.k.gpus[uuid].working() != 1 || len(m.k.owners) != 1 {
		t.Errorf("%d work, %d processes", m.k.gpus[uuid].working(), len(m.k.owners))
	}
}

// A slice that goes while its groups take turns leaves them on, and nobody takes them off again.
func TestASliceThatGoesTakesNoTurns(t *testing.T) {
	m := played(t, []int{20, 30, 20, 30}, timeslices.Load{Work: ms, Host: ms}, always(ms), always(ms), always(ms))
	m.members(0, 1, 2, 3)
	m.play(8200 * ms) // the next plan is not due yet
	if len(m.k.gpus[uuid].turns.sets) != 3 {
		t.Fatal("nobody takes turns")
	}
	m.node.GPUs[0].Slices = m.node.GPUs[0].Slices[:3]
	m.members(0, 1, 2)
	for range 100 {
		m.play(20 * ms)
		if m.gpu.Groups[3].Off {
			t.Fatal("who is gone is kept off")
		}
	}
	if len(m.k.gpus[uuid].turns.sets) != 2 {
		t.Errorf("%d take turns", len(m.k.gpus[uuid].turns.sets))
	}
	if text, err := os.ReadFile(m.run.VgpudOff()); err != nil || strings.Contains(string(text), "1003") {
		t.Errorf("the record is %s, %v", text, err)
	}
}

// Shares follow a slice that is changed under its job.
func TestChangedSharesAreKept(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	m.members(0, 1)
	m.play(2 * time.Second)
	m.node.GPUs[0].Slices[0].SMPercent, m.node.GPUs[0].Slices[1].SMPercent = 60, 40
	m.take()
	had := m.had(4 * time.Second)
	near(t, "share", 100*had[0]/(had[0]+had[1]), 60, 1)
}

// A job that is requeued, and is back before anybody has looked, has a page of its own.
func TestALaterRunHasItsOwnPage(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	m.members(0, 1)
	m.play(time.Second)
	if err := os.Remove(m.run.Time(1)); err != nil {
		t.Fatal(err)
	}
	m.page(1)
	m.node.GPUs[0].Slices[0].Restart = 1
	m.members(0, 1)
	m.play(time.Second)
	if now := m.time(1); now.BusyNs == 0 || now.BusyNs > uint64(time.Second) {
		t.Errorf("%+v", now)
	}
}

// A prolog that was killed is run again, and makes the job's pages anew.
func TestAPageThatIsMadeAgainIsTheJobs(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	m.members(1)
	m.play(time.Second)
	if err := os.Remove(m.run.Time(1)); err != nil {
		t.Fatal(err)
	}
	m.page(1)
	m.take()
	if now := m.time(1); now.LookedNs == 0 {
		t.Error("the prolog would wait for a look at it in vain")
	}
	m.members(0, 1)
	m.play(time.Second)
	if now := m.time(1); now.BusyNs == 0 {
		t.Errorf("%+v", now)
	}
}

// Of two with channel groups one has nothing to do, so that the GPU goes from nobody to nobody and its log is empty: NVML says who it is.
func TestOneAtWorkBesideOneThatIsIdleIsCounted(t *testing.T) {
	m := played(t, []int{50, 50}, always(2*ms), timeslices.Load{Work: us, Host: 100 * time.Hour})
	m.play(time.Second)
	m.members(0, 1)
	m.play(2 * time.Second)
	before := []ledger.TimeDevice{m.time(1), m.time(2)}
	had := m.had(3 * time.Second)
	for i, want := range had {
		now := m.time(uint32(i + 1))
		near(t, "counted", float64(now.BusyNs-before[i].BusyNs)/float64(3*time.Second)*100, want, 1)
		if now.UnknownNs != before[i].UnknownNs {
			t.Errorf("unknown: %+v, before %+v", now, before[i])
		}
	}
}

// A job of sixteen processes, of which half have nothing to do, has no more than one of as large a share. To look at so many for cheats takes
// nothing from what their slices take.
func TestAJobOfManyProcessesHasTheJobsShare(t *testing.T) {
	loads := make([]timeslices.Load, 17)
	for i := range loads {
		loads[i] = always(2 * ms)
		if i%2 == 1 {
			loads[i] = timeslices.Load{Work: us, Host: 100 * time.Hour}
		}
	}
	m := played(t, []int{50, 50}, loads...)
	for i := range m.jobs {
		m.jobs[i] = 1
	}
	m.jobs[16] = 2
	var all []int
	for i := range loads {
		all = append(all, i)
	}
	m.members(all...)
	m.play(3 * time.Second)
	had, sum := m.had(5*time.Second), 0.0
	for _, h := range had {
		sum += h
	}
	near(t, "the one's share", 100*had[16]/sum, 50, 1)
}

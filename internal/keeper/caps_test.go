// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// capped makes slices ones that never have more than their share.
func (m *machine) capped(slices ...int) {
	for _, i := range slices {
		m.node.GPUs[0].Slices[i].Elastic = false
	}
}

func (m *machine) isOff(group int) bool { return m.gpu.Groups[group].Off }

var waits = timeslices.Load{Work: us, Host: 1000 * time.Hour}

// One that is alone has its cap, with periods of calls and no log; its page says what credit it has.
func TestALoneCapIsKept(t *testing.T) {
	for _, percent := range []int{10, 50, 90} {
		m := played(t, []int{percent}, always(2*ms))
		m.capped(0)
		m.members(0)
		m.play(3 * time.Second)
		calls := m.calls["disable"]
		near(t, "had", m.had(10 * time.Second)[0], float64(percent), 1)
		if calls = m.calls["disable"] - calls; calls > 402 {
			t.Errorf("%d calls in ten seconds", calls)
		}
		if m.open != 2 {
			t.Errorf("%d files are open", m.open)
		}
		m.recordIs(true)
		if credit := time.Duration(m.time(1).CreditNs); credit < -50*ms || credit > 50*ms {
			t.Errorf("a credit of %v", credit)
		}
		m.killed[0] = true
		m.members()
		m.play(2 * lateFor)
		m.recordIs(false)
		m.gpu.Groups[0].Off = false // its channels went with it
		if m.open != 0 || m.isOff(0) {
			t.Errorf("%d files are open, it is off: %v", m.open, m.isOff(0))
		}
	}
}

// Who asks for less than its cap has all that it asks for, and nobody does anything about it.
func TestWhoAsksForLessThanItsCapIsLeftAlone(t *testing.T) {
	m := played(t, []int{25}, timeslices.Load{Work: ms, Host: 5 * ms})
	m.capped(0)
	m.members(0)
	m.play(4 * time.Second)
	calls := m.calls["disable"]
	near(t, "had", m.had(5 * time.Second)[0], 100./6, .3)
	if m.calls["disable"] != calls {
		t.Errorf("%d calls", m.calls["disable"]-calls)
	}
	m.recordIs(false)
}

func TestCapsBesideOthers(t *testing.T) {
	for _, c := range []struct {
		name   string
		shares []int
		capped []int
		loads  []timeslices.Load
		want   []float64
		calls  bool
	}{
		{"beside one that is idle", []int{25, 50}, []int{0}, []timeslices.Load{always(2 * ms), waits}, []float64{25, 0}, true},
		{"beside one that is busy", []int{25, 0}, []int{0}, []timeslices.Load{always(2 * ms), always(2 * ms)}, []float64{24.5, 73.5}, false},
		{"beside one that asks for a sixth", []int{50, 50}, []int{0}, []timeslices.Load{always(20 * ms), {Work: ms, Host: 5 * ms}}, []float64{50, 16.3}, true},
		{"two", []int{25, 40}, []int{0, 1}, []timeslices.Load{always(2 * ms), always(2 * ms)}, []float64{25, 40}, true},
		{"four of 25", []int{25, 25, 25, 25}, []int{0, 1, 2, 3}, []timeslices.Load{always(2 * ms), always(2 * ms), always(2 * ms), always(2 * ms)}, []float64{24.3, 24.3, 24.3, 24.3}, false},
	} {
		m := played(t, c.shares, c.loads...)
		m.capped(c.capped...)
		var all []int
		for i := range c.loads {
			all = append(all, i)
		}
		m.members(all...)
		m.play(5 * time.Second)
		calls := m.calls["disable"]
		had := m.had(10 * time.Second)
		for i, want := range c.want {
			near(t, c.name, had[i], want, 1)
		}
		if m.calls["disable"] != calls != c.calls {
			t.Errorf("%s: %d calls", c.name, m.calls["disable"]-calls)
		}
	}
}

// Ten whose caps fill the GPU cost no call, however they began; ten whose caps do not are off at the same time, by as few calls as one.
func TestTenWithCaps(t *testing.T) {
	small := timeslices.Load{Work: 300 * us, Host: 30 * ms, Varied: true}
	for percent, most := range map[int]int{10: 0, 8: 40} {
		for how, begins := range map[string]struct {
			apart, then time.Duration
			first       timeslices.Load
		}{"at once": {0, 0, always(2 * ms)}, "one after the other": {150 * ms, 0, always(2 * ms)}, "with small things": {0, 700 * ms, small}} {
			var percents, all []int
			var loads []timeslices.Load
			for i := range 10 {
				percents, all, loads = append(percents, percent), append(all, i), append(loads, begins.first)
			}
			m := played(t, percents, loads...)
			m.capped(all...)
			for i := range all {
				m.gpu.Groups[i].Off = begins.apart > 0
			}
			for i := range all {
				m.gpu.Groups[i].Off = false
				m.members(all[:i+1]...)
				m.play(begins.apart)
			}
			m.play(begins.then)
			for i := range all {
				m.gpu.Groups[i].Load = always(2 * ms)
			}
			m.play(6 * time.Second)
			calls := m.calls["disable"]
			for i, had := range m.had(10 * time.Second) {
				near(t, fmt.Sprintf("%d of ten of %d, %s", i, percent, how), had, float64(percent), 0.5)
			}
			if calls = (m.calls["disable"] - calls) / 10; calls > most {
				t.Errorf("ten of %d, %s: %d calls a second", percent, how, calls)
			}
		}
	}
}

// All processes of a job are off at once; one that comes while it is off is off as well, and one call is for 64 channels.
func TestAJobIsHeldAsAWhole(t *testing.T) {
	m := played(t, []int{20}, always(2*ms), always(2*ms), always(2*ms))
	m.capped(0)
	m.gpu.Groups[2].Off = true // is not there yet
	m.members(0, 1)
	m.play(2 * time.Second)
	sum := func(had []float64) (all float64) {
		for _, h := range had {
			all += h
		}
		return all
	}
	near(t, "two processes", sum(m.had(5*time.Second)), 20, 1)
	for !m.isOff(0) {
		m.play(ms)
	}
	m.gpu.Groups[2].Off = false
	m.members(0, 1, 2)
	if !m.isOff(0) || !m.isOff(1) || !m.isOff(2) {
		t.Error("a process that came while its job is off is on")
	}
	calls := m.calls["disable"]
	near(t, "three processes", sum(m.had(5*time.Second)), 20, 1)
	if calls = m.calls["disable"] - calls; calls > 202 {
		t.Errorf("%d calls", calls)
	}
}

// A cap that is changed holds at once, also to none and back.
func TestACapIsChanged(t *testing.T) {
	m := played(t, []int{20}, always(2*ms))
	m.capped(0)
	m.members(0)
	m.play(3 * time.Second)
	slice := &m.node.GPUs[0].Slices[0]
	for _, to := range []int{60, 10, 0, 35} {
		slice.SMPercent = to
		m.take()
		m.play(time.Second)
		want := float64(to)
		if to == 0 {
			want = 100
			m.recordIs(false)
		}
		near(t, "changed", m.had(5 * time.Second)[0], want, 1)
	}
	for !m.isOff(0) {
		m.play(ms)
	}
	slice.Elastic = true
	m.take()
	if m.isOff(0) {
		t.Error("an elastic one is off")
	}
	m.play(100 * ms)
	near(t, "elastic", m.had(time.Second)[0], 100, 0)
}

// A worker that died is followed by one that goes on from what was written down: what was had meanwhile is paid back.
func TestALoneCapIsKeptThoughWorkersDie(t *testing.T) {
	for _, phases := range []int{0, 7} {
		keptThoughWorkersDie(t, phases)
	}
}

func keptThoughWorkersDie(t *testing.T, phases int) {
	t.Helper()
	m := played(t, []int{50}, always(2*ms))
	m.capped(0)
	m.members(0)
	m.play(2 * time.Second)
	busy, from := m.gpu.Groups[0].Busy, m.gpu.Now
	for i := range 30 {
		m.play(750*ms + time.Duration(i*phases)*ms) // at one time between two looks, or at any
		m.gpu.Groups[0].Off = false                 // by the supervisor
		clear(m.offs)
		_ = os.Remove(m.run.VgpudOff())
		m.runs(m.gpu.Now + 200*ms)
		m.open = 0
		m.lookedAt = -1 // NVML has to be begun anew
		m.begin()
		m.take()
	}
	near(t, "had", 100*float64(m.gpu.Groups[0].Busy-busy)/float64(m.gpu.Now-from), 50, 2)
}

// Where the driver does not do it, the GPU is left to the library: nobody else would hold a cap.
func TestAGPUWhoseDriverKeepsNobodyOffIsTheLibrarys(t *testing.T) {
	m := played(t, []int{20}, always(2*ms))
	m.capped(0)
	m.stays = channels.Status(0x56)
	m.members(0)
	m.play(time.Second)
	select {
	case gpu := <-m.refused:
		if gpu != uuid {
			t.Errorf("%s is left to the library", gpu)
		}
	case <-time.After(10 * time.Second): // beside the loop
		t.Error("nobody keeps the cap, and nothing is done about it")
	}
}

// What somebody has who is no tenant, as a program of root's, holds nobody at his cap.
func TestWhatAnUntrackedProcessUsesIsNobodys(t *testing.T) {
	m := played(t, []int{60}, always(2*ms), always(2*ms)) // the second one is nobody's
	m.capped(0)
	m.strange[4711] = 0
	m.members(0)
	m.play(4 * time.Second)
	near(t, "beside an untracked process", m.had(5 * time.Second)[0], 60, 1)
	if len(m.answers) != 0 {
		t.Errorf("judged: %v", m.answers)
	}
}

// Nor is it counted to one that is alone, capped or not.
func TestWhatAnUntrackedProcessUsesIsNotCounted(t *testing.T) {
	m := played(t, []int{60}, always(2*ms), always(2*ms))
	m.strange[4711] = 0
	m.members(0)
	m.play(2 * time.Second)
	was := m.time(1).BusyNs
	had := m.had(5 * time.Second)[0]
	near(t, "counted", 100*time.Duration(m.time(1).BusyNs-was).Seconds()/5, had, 2)
	if had > 95 {
		t.Errorf("it had %.1f %%: nobody else was there", had)
	}
}

// One that lets itself on again is judged by what the GPU's own counter says, as no log says anything of one that is alone.
func TestOneAloneThatLetsItselfOnIsFound(t *testing.T) {
	m := played(t, []int{20}, always(2*ms))
	m.capped(0)
	m.gpu.Groups[0].Cheat.Enables = true
	m.members(0)
	m.play(6 * time.Second)
	if len(m.answers) == 0 {
		t.Error("it has all of the GPU, and nobody minds")
	}
	honest := played(t, []int{20}, always(20*ms))
	honest.capped(0)
	honest.members(0)
	honest.play(20 * time.Second)
	if len(honest.answers) != 0 {
		t.Error("one that does nothing is judged")
	}
}

// What a page says never has a GPU be left to the library: its user is judged.
func TestWhoNamesNoChannelIsFrozen(t *testing.T) {
	m := played(t, []int{30, 50}, always(2*ms), waits)
	m.capped(0)
	m.members(1)
	m.node.Processes = append(m.node.Processes, Process{Process: audit.Process{PID: 100, StartTicks: m.start(100)}, Job: 1,
		Groups: []ledger.Group{{Client: 1000, Device: 1, Group: 1, Engine: 1, FD: 9, Subdevice: 2}}})
	m.take()
	caught(t, m, 6*time.Second)
	select {
	case gpu := <-m.refused:
		t.Errorf("%s is the library's", gpu)
	default:
	}
}

// A call that does not let it on is made again.
func TestWhoWasNotLetOnIsLetOnAgain(t *testing.T) {
	m := played(t, []int{50}, always(2*ms))
	m.capped(0)
	m.members(0)
	m.play(3 * time.Second)
	for range 5 {
		for !m.isOff(0) {
			m.play(ms)
		}
		m.sticks, m.stays = 1, channels.Status(0x65)
		for m.sticks > 0 {
			m.play(ms)
		}
		m.sticks, m.stays = 0, nil
		m.play(500 * ms)
	}
	near(t, "had", m.had(5 * time.Second)[0], 50, 1)
}

// Who takes his groups back from his page is held as before, and who never names any is found.
func TestABlankPageIsNoWayAroundACap(t *testing.T) {
	m := played(t, []int{30, 50}, always(2*ms), waits)
	m.capped(0)
	m.attached[100] = true
	m.members(0)
	m.play(2 * time.Second)
	m.members()
	m.play(time.Second)
	near(t, "its page names none", m.had(5 * time.Second)[0], 30, 1)
	m.members(0)
	m.node.Processes[0].Groups[0].Channels, m.node.Processes[0].Groups[0].ChannelCount = nil, 0
	m.take()
	near(t, "it names no channel", m.had(5 * time.Second)[0], 30, 1)
	if len(m.answers) != 0 {
		t.Errorf("judged: %v", m.answers)
	}

	never := played(t, []int{30, 50}, always(2*ms), waits)
	never.capped(0)
	never.attached[100] = true
	never.strange[100] = 1
	never.members()
	caught(t, never, unseenEach+6*time.Second)
}

// Programs that begin and end one after the other have their job's cap together, whatever the pause between them.
func TestShortProgramsAreHeldTogether(t *testing.T) {
	for _, c := range []struct{ live, pause time.Duration }{{time.Second, 0}, {time.Second, 100 * ms}, {300 * ms, 50 * ms}, {300 * ms, 2 * time.Second}} {
		var loads []timeslices.Load
		for range 40 {
			loads = append(loads, always(2*ms))
		}
		m := played(t, []int{30}, loads...)
		m.capped(0)
		for _, g := range m.gpu.Groups {
			g.Off = true // is not there yet
		}
		from := m.gpu.Now
		for i := range loads {
			m.gpu.Groups[i].Off = false
			m.play(20 * ms) // until it is named
			m.members(i)
			m.play(c.live)
			m.killed[i], m.gpu.Groups[i].Off = true, true
			m.members()
			m.play(c.pause)
		}
		busy := time.Duration(0)
		for _, g := range m.gpu.Groups {
			busy += g.Busy
		}
		asks := 100 * float64(c.live) / float64(c.live+c.pause)
		if had := 100 * float64(busy) / float64(m.gpu.Now-from); had > 33 || had < min(30, asks)-8 {
			t.Errorf("%v: had %.1f of %.1f", c, had, asks)
		}
	}
}

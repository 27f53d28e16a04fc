// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// caught is a machine on which job 1's process does something, until its step is frozen.
func caught(t *testing.T, m *machine, within time.Duration) {
	t.Helper()
	m.until(t, within, func() bool { return len(m.k.frozen) > 0 })
	if f := m.k.frozen[0]; f.Job != 1 {
		t.Errorf("job %d is frozen", f.Job)
	}
	page := m.time(1)
	if page.Frozen != 1 || page.Flags&ledger.TimeFrozen == 0 || page.Verdict == 0 || page.Killed != 0 {
		t.Errorf("its page says %+v", page)
	}
	m.recordIs(true)
	if other := m.time(2); other.Frozen != 0 || other.Flags&ledger.TimeFrozen != 0 || other.Verdict != 0 {
		t.Errorf("its neighbour's page says %+v", other)
	}
}

// until plays until something is so.
func (m *machine) until(t *testing.T, within time.Duration, is func() bool) {
	t.Helper()
	for end := m.gpu.Now + within; !is(); m.play(50 * ms) {
		if m.gpu.Now >= end {
			t.Fatalf("not after %s", within)
		}
	}
}

func two(t *testing.T) *machine { return played(t, []int{30, 70}, always(2*ms), always(2*ms)) }

func TestCheatersAreFrozen(t *testing.T) {
	t.Run("sets its own slice", func(t *testing.T) {
		m := two(t)
		m.members(0, 1)
		m.play(time.Second)
		m.gpu.Groups[0].Cheat.Sets = time.Second
		caught(t, m, 3*time.Second)
	})
	t.Run("enables itself", func(t *testing.T) {
		m := played(t, []int{30, 20, 50}, always(ms), timeslices.Load{Work: ms, Host: ms}, always(ms))
		m.members(0, 1, 2)
		m.play(6 * time.Second)
		m.gpu.Groups[0].Cheat.Enables = true
		caught(t, m, 4*time.Second)
	})
	t.Run("waits for idle", func(t *testing.T) {
		m := two(t)
		m.members(0, 1)
		m.play(time.Second)
		m.gpu.Groups[0].Cheat.Piece, m.gpu.Groups[0].Load.Work = 100*ms, 100*ms
		m.saves[1000] = &channels.Saves{}
		caught(t, m, 6*time.Second)
	})
	t.Run("makes contexts without end", func(t *testing.T) {
		m := two(t)
		m.members(0, 1)
		m.play(time.Second)
		p := &m.node.Processes[0]
		for len(p.Groups) < ledger.MaxGroups {
			p.Groups = append(p.Groups, p.Groups[0])
			p.Groups[len(p.Groups)-1].Group = uint32(len(p.Groups))
		}
		p.More = 9
		m.take()
		caught(t, m, 3*time.Second)
	})
	t.Run("has no handles", func(t *testing.T) {
		m := played(t, []int{30, 70, 10}, always(2*ms), always(2*ms), always(2*ms))
		m.members(1, 2)
		m.play(time.Second)
		m.strange[100] = 1
		caught(t, m, 4*time.Second)
	})
}

// Neither groups without work nor programs that end soon hide what a job does.
func TestCheatersWhoHideItAreFrozen(t *testing.T) {
	t.Run("sets the slice of one of its groups", func(t *testing.T) {
		m := two(t)
		m.members(0, 1)
		m.another(0)
		m.play(time.Second)
		m.gpu.Groups[0].Cheat.Sets = time.Second
		caught(t, m, 3*time.Second)
	})
	t.Run("names another group than the one at work", func(t *testing.T) {
		m := two(t)
		m.members(0, 1)
		m.another(0)
		m.node.Processes[0].Groups = m.node.Processes[0].Groups[1:]
		m.take()
		m.play(time.Second)
		m.gpu.Groups[0].Slice = time.Second
		caught(t, m, 4*time.Second)
	})
	t.Run("sets its slice in short programs", func(t *testing.T) {
		m := played(t, []int{30, 70}, always(2*ms), always(2*ms), always(2*ms), always(2*ms), always(2*ms), always(2*ms), always(2*ms))
		m.jobs = []uint32{1, 2, 1, 1, 1, 1, 1}
		for _, now := range []int{0, 2, 3, 4, 5, 6} {
			for i, g := range m.gpu.Groups {
				g.Off = i != 1 && i != now
				m.killed[i] = g.Off
			}
			m.gpu.Groups[now].Cheat.Sets = time.Second
			m.members(now, 1)
			if m.play(600 * ms); len(m.k.frozen) > 0 {
				return
			}
		}
		t.Error("nobody is frozen")
	})
}

// Nobody who does nothing of it is frozen, and nobody whom NVML shows for a moment before its handles are there.
func TestHonestProgramsAreLeftAlone(t *testing.T) {
	m := played(t, []int{20, 30, 10, 40}, always(ms), timeslices.Load{Work: ms, Host: ms}, timeslices.Load{Work: ms, Host: 100 * us}, always(20*ms))
	m.members(0, 1, 2)
	m.play(20 * time.Second)
	m.strange[103] = 4
	m.play(time.Second)
	m.members(0, 1, 2, 3)
	m.play(20 * time.Second)
	if len(m.answers) > 0 {
		t.Error("somebody was to be frozen")
	}
}

// Whoever has the library may have groups that it could not see or write down.
func TestWhoHasTheLibraryIsNoneWhoHides(t *testing.T) {
	m := played(t, []int{30, 70, 10, 5}, always(2*ms), always(2*ms), always(2*ms), always(2*ms))
	m.strange[103], m.attached[100], m.attached[103] = 4, true, true
	m.members(0, 1, 2)
	m.node.Processes[0].Groups, m.node.Processes[0].More = nil, 1 // its driver's calls are not seen
	m.node.Processes[1].More = 1                                  // an event was lost
	m.take()
	m.play(20 * time.Second)
	if len(m.answers) > 0 {
		t.Error("somebody was to be frozen")
	}
	if m.time(1).Flags&ledger.TimeUnnamed == 0 {
		t.Error("its page does not say that handles are missing")
	}
}

// While one step of a job is frozen the others are judged.
func TestAFrozenStepCoversNoOther(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms), always(2*ms))
	m.members(0, 1, 2)
	m.play(time.Second)
	m.gpu.Groups[0].Cheat.Sets, m.gpu.Groups[2].Cheat.Sets = time.Second, time.Second
	m.until(t, 4*time.Second, func() bool { return len(m.k.frozen) == 2 })
	m.play(10 * time.Second)
	if m.time(1).Flags&ledger.TimeFrozen != 0 && len(m.k.frozen) == 0 {
		t.Error("its page says that a step is frozen")
	}
}

// A step goes on after ten seconds; the third time it is killed.
func TestFrozenTwiceThenKilled(t *testing.T) {
	m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
	sleeper := exec.Command("sleep", "60")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = sleeper.Process.Kill() })
	pid := sleeper.Process.Pid
	start, _ := audit.Auditor{Proc: "/proc"}.StartOf(pid)
	m.k.Step = func(p Process, _ bool) (Frozen, error) {
		return Frozen{Job: p.Job, Step: "0", Processes: []audit.Process{{PID: pid, StartTicks: start}}}, nil
	}
	m.members(0, 1)
	m.play(time.Second)
	m.gpu.Groups[0].Cheat.Sets = time.Second
	for times := range 2 {
		m.until(t, 10*time.Second, func() bool { return len(m.k.frozen) > 0 })
		becomes(t, pid, true)
		m.play(9900 * ms)
		if len(m.k.frozen) == 0 {
			t.Fatal("it goes on already")
		}
		m.until(t, 200*ms, func() bool { return len(m.k.frozen) == 0 })
		becomes(t, pid, false)
		if m.time(1).Flags&ledger.TimeFrozen != 0 || int(m.time(1).Frozen) != times+1 {
			t.Errorf("after %d times: %+v", times+1, m.time(1))
		}
		m.recordIs(false)
	}
	ended := make(chan error, 1)
	go func() { ended <- sleeper.Wait() }()
	m.play(5 * time.Second)
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("its process ended with %v", err)
	}
	if page := m.time(1); page.Killed == 0 || share.VerdictOf(page.Verdict) != share.SetsItsSlice {
		t.Errorf("its page says %+v", page)
	}
}

// becomes waits until a process is stopped, or goes on.
func becomes(t *testing.T, pid int, stopped bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); ; time.Sleep(ms) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err == nil && strings.Contains(string(text), ") T ") == stopped {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("stopped: not %v: %s %v", stopped, text, err)
		}
	}
}

// What the site says is done.
func TestCheatersAreLoggedOrKilled(t *testing.T) {
	for cheaters, steps := range map[string]int{"log": 0, "kill": 1} {
		m := played(t, []int{30, 70}, always(2*ms), always(2*ms))
		m.k.Cheaters = cheaters
		m.members(0, 1)
		m.play(time.Second)
		m.gpu.Groups[0].Cheat.Sets = time.Second
		m.play(3 * time.Second)
		if min(1, len(m.answers)) != steps || len(m.k.frozen) != 0 {
			t.Errorf("%s: %d steps were looked for, %d are frozen", cheaters, len(m.answers), len(m.k.frozen))
		}
		if page := m.time(1); min(1, int(page.Killed)) != steps || share.VerdictOf(page.Verdict) != share.SetsItsSlice {
			t.Errorf("%s: its page says %+v", cheaters, page)
		}
	}
}

// Whoever has the library and keeps its groups from vgpud is left alone as long as no other has less by it.
func TestWhoTakesMoreByWhatIsNotKnownIsFrozen(t *testing.T) {
	m := played(t, []int{50, 50}, always(2*ms), always(2*ms))
	m.strange[100], m.attached[100] = 1, true
	m.members(1)
	m.play(5 * time.Second)
	if len(m.answers) > 0 {
		t.Fatal("it had no more than the driver gives to everybody")
	}
	m.gpu.Groups[0].Slice = time.Second
	caught(t, m, 6*time.Second)
}

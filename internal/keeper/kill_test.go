// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

// jobs are the processes of a job that have not ended.
func (s *site) jobs(job uint32) (pids []int) {
	s.t.Helper()
	current, err := s.here.Store.Read()
	s.must(err)
	all := s.here.Auditor.OfUsers(s.uid)
	owners, err := s.here.Auditor.Owners(current.Slices, all)
	s.must(err)
	return slices.DeleteFunc(all, func(pid int) bool { return owners[pid] != job || channels.HasEnded(pid) })
}

// All steps of a job are killed with those who have left them, and with those who are begun meanwhile.
func TestAJobThatBeginsProcessesWithoutEndIsKilled(t *testing.T) {
	s := newSite(t)
	s.here.Auditor.WholeNode = true
	other := s.process(8)
	storm := exec.Command("bash", "-c", `while :; do setsid sleep 60 & setsid bash -c 'setsid sleep 60 & sleep 0.02' & sleep 0.005; done`)
	storm.Env = []string{fmt.Sprintf("VGPU_STEP_DIR=%s/7/steps/0", s.here.Store.Dir.Jobs()), "PATH=" + os.Getenv("PATH")}
	s.must(storm.Start())
	pid := storm.Process.Pid
	t.Cleanup(func() { _ = storm.Process.Kill(); _ = storm.Wait() })
	for until := time.Now().Add(time.Minute); len(s.jobs(7)) < 20; time.Sleep(10 * ms) {
		if time.Now().After(until) {
			t.Fatal("there is no storm")
		}
	}
	p := Process{Process: audit.Process{PID: pid, StartTicks: startOf(t, pid)}, Job: 7, UID: s.uid}
	look := func() (Frozen, error) { return s.here.Step(p, true) }
	all, err := look()
	s.must(err)
	s.must(all.Kill(look))
	if left := s.jobs(7); len(left) > 0 {
		t.Errorf("%d are left", len(left))
	}
	if channels.HasEnded(other.PID) {
		t.Error("a process of another job is killed")
	}
}

// Whoever begins the next step as soon as one is killed has nothing of the GPU by it.
func TestRestartsOfKilledStepsAreWorthNothing(t *testing.T) {
	const steps = 40
	loads := []timeslices.Load{always(2 * ms), always(2 * ms)}
	for range steps {
		loads = append(loads, always(2*ms))
	}
	m := played(t, []int{60, 40}, loads...)
	m.k.Log = hclog.NewNullLogger()
	for i := range m.jobs {
		m.jobs[i] = 1
	}
	m.jobs[1] = 2
	now := 0
	for i, g := range m.gpu.Groups {
		g.Off = i != 1
	}
	step := func(i int) {
		now, m.starts[100+i] = i, m.gpu.Now
		m.gpu.Groups[i].Off, m.gpu.Groups[i].Cheat.Sets = false, time.Second
		m.members(1, i)
	}
	m.members(1)
	m.play(time.Second)
	step(0)
	from := m.gpu.Now
	for killed := uint32(0); now < len(m.gpu.Groups) && m.gpu.Now < from+2*time.Minute; m.play(50 * ms) {
		stands := slices.ContainsFunc(m.k.frozen, func(f frozen) bool { return slices.Contains(f.pids, 100+now) })
		m.gpu.Groups[now].Off = stands || m.killed[now]
		if page := m.time(1); page.Killed > killed { // and another one begins at once
			killed = page.Killed
			m.killed[now], m.gpu.Groups[now].Off = true, true
			if now = max(2, now+1); now < len(m.gpu.Groups) {
				step(now)
			}
		}
	}
	had := time.Duration(0)
	for i, g := range m.gpu.Groups {
		if i != 1 {
			had += g.Busy
		}
	}
	if part := 100 * float64(had) / float64(m.gpu.Now-from); part > 10 {
		t.Errorf("it had %.1f %%", part)
	}
}

// A step stands still for its time, also where the worker dies meanwhile.
func TestAFreezeOutlivesItsWorker(t *testing.T) {
	m := two(t)
	m.members(0, 1)
	m.play(time.Second)
	m.gpu.Groups[0].Cheat.Sets = time.Second
	caught(t, m, 3*time.Second)
	until := m.k.frozen[0].Until
	m.gpu.Groups[0].Cheat.Sets = 0
	m.play(2 * time.Second)
	if err := undo(m.run.VgpudOff(), boot, nobodysEnabler{}, m.gpu.Now); err != nil {
		t.Fatal(err)
	}
	m.open = 0
	m.begin()
	m.k.stillFrozen()
	m.members(0, 1)
	if page := m.time(1); len(m.k.frozen) != 1 || page.Frozen != 1 || page.Flags&ledger.TimeFrozen == 0 {
		t.Fatalf("it goes on: %+v", page)
	}
	m.play(until - m.gpu.Now - 50*ms)
	m.recordIs(true)
	m.play(100 * ms)
	m.recordIs(false)
	if page := m.time(1); len(m.k.frozen) != 0 || page.Frozen != 1 || page.Flags&ledger.TimeFrozen != 0 {
		t.Errorf("it does not go on: %+v", page)
	}
	if err := undo(m.run.VgpudOff(), boot, nobodysEnabler{}, until); err != nil {
		t.Error(err)
	}
}

type nobodysEnabler struct{}

func (nobodysEnabler) Enable(GPU, []channels.Channel) error { return nil }

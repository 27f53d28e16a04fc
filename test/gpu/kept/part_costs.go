// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
)

const (
	costRounds = 20
	costEach   = 20 * time.Millisecond
)

// costs are what each thing that vgpud does at a look takes of a core, and how long it is waited for: two are at work, and vgpud stands still.
func (t *trial) costs() []trialCase {
	return []trialCase{{"calls", func(t *trial) {
		t.measured("ms=2")
		t.signalVgpud(unix.SIGSTOP)
		defer t.signalVgpud(unix.SIGCONT)
		s := t.newScript()
		defer s.close()
		for _, a := range s.all {
			letGo(a.job)
		}
		s.pause(time.Second)
		s.costsOfCalls()
		s.costsOfNVML()
		s.lag()
	}}}
}

func (s *script) costsOfCalls() {
	l := must(s.gpu.OpenLog())
	defer l.Close()
	a := s.all[0]
	slice, off := 0, false
	for _, c := range []struct {
		what string
		do   func() error
	}{
		{"the log, read with a flush", func() error { _, _, err := l.Poll(true); return err }},
		{"the log, read", func() error { _, _, err := l.Poll(false); return err }},
		{"the GPU's clock", func() error { _, err := s.gpu.ClockNS(); return err }},
		{"a slice, asked for", func() error { _, err := a.owner.Slice(a.group()); return err }},
		{"a slice, set", func() error {
			slice++
			return a.owner.SetTimeSlice(a.group(), time.Duration(8000+slice)*time.Microsecond)
		}},
		{"saves", func() error { _, err := a.owner.Saves(a.group()); return err }},
		{"eight channels off, then on", func() error {
			off = !off
			_, err := s.gpu.Disable(off, a.channels())
			return err
		}},
	} {
		s.cost(c.what, c.do)
	}
}

func (s *script) costsOfNVML() {
	library := ""
	if s.simulated {
		library = s.Home.Path("sim", "libnvidia-ml.so.1")
	}
	session := must(discover.Open(must(discover.Library(library))))
	defer session.Close()
	uuid := device.UUID(s.trial.gpu().UUID)
	activity := must(session.Activity(uuid))
	defer activity.Close()
	s.cost("GPM, or NVML's samples", func() error { activity.Since(); return nil })
	var pids []int
	s.cost("who has memory", func() error {
		pids = nil
		for _, held := range session.Holders([]device.UUID{uuid})[uuid].Processes {
			pids = append(pids, held.PID)
		}
		return nil
	})
	s.cost("who is at work", func() error {
		_, err := session.Utilization(uuid, uint64(time.Now().Add(-time.Second).UnixMicro()))
		return err
	})
	slices := must(s.Slices(node))
	auditor := audit.Here(s.run())
	s.cost(fmt.Sprintf("whose %d processes are", len(pids)), func() error { _, err := auditor.Owners(slices, pids); return err })
}

// lag shows how late the GPU's counter follows: what it says of each of some short times, in the middle of which all who are at work are put off.
func (s *script) lag() {
	const each, count = 25 * time.Millisecond, 24
	sample := s.trial.gpu().Sample()
	var said []string
	for i := range count {
		if i == count/2 {
			for _, a := range s.all {
				must(s.gpu.Disable(true, a.channels()))
			}
			said = append(said, "off")
		}
		s.pause(each)
		next := s.trial.gpu().Sample()
		said = append(said, fmt.Sprintf("%.0f", s.trial.gpu().Engine(sample, next)))
		sample = next
	}
	for _, a := range s.all {
		must(s.gpu.Disable(false, a.channels()))
	}
	s.row(fmt.Sprintf("GPM each %d ms", each.Milliseconds()), strings.Join(said, " "))
}

// cost has a thing done some times, with pauses, so that nothing of it is still warm.
func (s *script) cost(what string, do func() error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var waited, most time.Duration
	var failed error
	cpu := threadCPU()
	for range costRounds {
		before := time.Now()
		if err := do(); err != nil {
			failed = err
		}
		took := time.Since(before)
		waited, most = waited+took, max(most, took)
		time.Sleep(costEach)
	}
	s.row(what, fmt.Sprintf("%.3f ms of a core, %.3f ms waited for, %.3f at most", float64((threadCPU()-cpu).Microseconds())/1e3/costRounds,
		float64(waited.Microseconds())/1e3/costRounds, float64(most.Microseconds())/1e3), answered(failed))
}

func threadCPU() time.Duration {
	var used unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &used) // it cannot fail
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

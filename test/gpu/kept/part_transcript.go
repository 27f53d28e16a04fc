// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

// script is what the transcript acts on: two tenants, whose handles are those that the library wrote down.
type script struct {
	*trial
	driver *channels.Driver
	gpu    *channels.GPU
	all    []*actor
}

type actor struct {
	*job
	pid    int
	owner  *channels.Owner
	groups []ledger.Group
}

func (a *actor) group() channels.Group {
	g := a.groups[0]
	return channels.Group{FD: int(g.FD), Client: g.Client, Subdevice: g.Subdevice, Handle: g.Group}
}

func (a *actor) channels() (all []channels.Channel) {
	for _, handle := range a.groups[0].Channels {
		all = append(all, channels.Channel{Client: a.groups[0].Client, Handle: handle})
	}
	return all
}

// rate is in kernels a second.
func (s *script) rate(a *actor) float64 {
	const window = 500 * time.Millisecond
	s.pause(50 * time.Millisecond) // what was on its way has ended
	before := a.done()
	s.pause(window)
	return float64(a.done()-before) / window.Seconds()
}

// transcript makes the driver's calls while vgpud is stopped.
func (t *trial) transcript() []trialCase {
	return []trialCase{{"calls", func(t *trial) {
		t.measured("ms=2") // and with it there is a vgpud
		t.signalVgpud(unix.SIGSTOP)
		defer t.signalVgpud(unix.SIGCONT)
		s := t.newScript()
		defer s.close()
		s.slices()
		s.switches()
		s.twice()
		s.log()
		s.deaths()
	}}}
}

func (t *trial) newScript() *script {
	s := &script{trial: t, driver: must(channels.Open(t.controlDevice()))}
	for _, j := range t.start(elastic("ms=2", 50, 50)...) {
		a := &actor{job: j, pid: int(j.boards[0].Get(gauge.PID))}
		a.owner = must(s.driver.Owner(a.pid))
		processes := must(ledger.ReadGroups(t.run().Groups(j.id), j.id))
		for _, p := range processes {
			a.groups = append(a.groups, p.Groups...)
		}
		if len(a.groups) == 0 || len(a.groups[0].Channels) == 0 {
			panic(fmt.Errorf("the groups page of job %d has none: %+v", j.id, processes))
		}
		s.all = append(s.all, a)
	}
	on := t.gpu()
	s.gpu = must(s.driver.GPU(on.Address, filepath.Join(t.devices(), fmt.Sprintf("nvidia%d", on.Minor))))
	g := s.all[0].groups[0]
	s.row("the GPU", fmt.Sprintf("its instance %d, in the groups page %d", s.gpu.DeviceInstance(), g.DeviceInstance))
	s.row("groups of a process", fmt.Sprintf("%d, engine %d, %d channels, subdevice seen: %t", len(s.all[0].groups), g.Engine, g.ChannelCount, g.Subdevice != 0))
	return s
}

func (s *script) close() {
	for _, a := range s.all {
		a.owner.Close()
	}
	s.gpu.Close()
	s.driver.Close()
}

func answered(err error) string {
	if err != nil {
		return err.Error()
	}
	return "status 0"
}

func (s *script) slices() {
	a := s.all[0]
	slice, err := a.owner.Slice(a.group())
	s.row("slice as made", fmt.Sprint(slice), answered(err))
	for _, set := range []time.Duration{time.Microsecond, 100 * time.Microsecond, 3 * time.Millisecond, time.Second} {
		err := a.owner.SetTimeSlice(a.group(), set)
		slice, readErr := a.owner.Slice(a.group())
		s.row(fmt.Sprintf("slice of %v set", set), answered(err), fmt.Sprintf("read back %v", slice), answered(readErr))
	}
	copied := s.copied(a)
	defer unix.Close(copied)
	other := channels.File(must(unix.Open(fmt.Sprintf("/proc/self/fd/%d", copied), unix.O_RDWR|unix.O_CLOEXEC, 0)))
	defer unix.Close(int(other))
	_, err = other.Slice(a.group())
	s.row("slice by another open file", answered(err))
	wrong := a.group()
	wrong.Handle = 0x5cffffff
	_, err = a.owner.Slice(wrong)
	s.row("slice of a group that is not there", answered(err))
	wrong = a.group()
	wrong.Client = 0xc1dfffff
	_, err = a.owner.Slice(wrong)
	s.row("slice of a client that is not there", answered(err))
	wrong = s.all[1].group()
	wrong.FD = a.group().FD
	_, err = a.owner.Slice(wrong)
	s.row("slice of another process's group", answered(err))
}

// copied is a descriptor of the process's client. Until it is closed it keeps all that the process has.
func (s *script) copied(a *actor) int {
	pidfd := must(unix.PidfdOpen(a.pid, 0))
	defer unix.Close(pidfd)
	return must(unix.PidfdGetfd(pidfd, a.group().FD, 0))
}

func (s *script) switches() {
	a := s.all[0]
	letGo(a.job)
	resident, err := s.gpu.Resident()
	s.row("resident channel (2080121c), one tenant", fmt.Sprintf("%#x", resident), answered(err))
	before := s.rate(a)
	gone, err := s.gpu.Disable(true, a.channels())
	s.row("all channels off by root's own client", answered(err), fmt.Sprintf("%d gone; kernels a second %.0f, then %.0f", len(gone), before, s.rate(a)))
	saved, err := a.owner.Saves(a.group())
	s.row("saves (20801215) while off", fmt.Sprintf("%+v", saved), answered(err))
	gone, err = s.gpu.Disable(false, a.channels())
	s.row("on again", answered(err), fmt.Sprintf("%d gone; kernels a second %.0f", len(gone), s.rate(a)))

	file := channels.File(s.copied(a))
	defer unix.Close(int(file))
	absent := channels.Channel{Client: a.group().Client, Handle: 0x5cffffff}
	err = file.Disable(a.group().Client, a.group().Subdevice, true, append(a.channels(), absent))
	s.row("off, with a channel that is not there behind them", answered(err), fmt.Sprintf("kernels a second %.0f", s.rate(a)))
	err = file.Disable(a.group().Client, a.group().Subdevice, false, a.channels())
	s.row("on again", answered(err), fmt.Sprintf("kernels a second %.0f", s.rate(a)))
	err = file.Disable(a.group().Client, a.group().Subdevice, true, append([]channels.Channel{absent}, a.channels()...))
	s.row("off, with a channel that is not there before them", answered(err), fmt.Sprintf("kernels a second %.0f", s.rate(a)))
	err = file.Disable(a.group().Client, a.group().Subdevice, false, a.channels())
	s.row("on again", answered(err), fmt.Sprintf("kernels a second %.0f", s.rate(a)))
	absent.Client = 0xc1dfffff
	s.row("off, a channel of a client that is not there", answered(file.Disable(a.group().Client, a.group().Subdevice, true, []channels.Channel{absent})))
}

// twice says whether the driver counts how often a channel was switched off or on, and whether one that has no work is switched as well.
func (s *script) twice() {
	for i, a := range s.all {
		s.row(fmt.Sprintf("slice of tenant %d", i), answered(a.owner.SetTimeSlice(a.group(), tenantsSlices[i])))
	}
	a, idle := s.all[0], s.all[1]
	for _, c := range []struct {
		what string
		off  []bool
	}{{"off twice, on once", []bool{true, true, false}}, {"on again", []bool{false}}, {"on twice more, off once", []bool{false, false, true}}, {"on again", []bool{false}}} {
		var errs []error
		for _, off := range c.off {
			_, err := s.gpu.Disable(off, a.channels())
			errs = append(errs, err)
		}
		s.row(c.what, answered(errors.Join(errs...)), fmt.Sprintf("kernels a second %.0f", s.rate(a)))
	}
	own := channels.File(s.copied(a))
	err := own.Disable(a.group().Client, a.group().Subdevice, true, a.channels())
	_, onErr := s.gpu.Disable(false, a.channels())
	s.row("off by itself, on by root", answered(errors.Join(err, onErr)), fmt.Sprintf("kernels a second %.0f", s.rate(a)))
	err = own.Disable(a.group().Client, a.group().Subdevice, false, a.channels())
	unix.Close(int(own))
	s.row("on by itself", answered(err), fmt.Sprintf("kernels a second %.0f", s.rate(a)))
	_, err = s.gpu.Disable(true, idle.channels())
	_, onErr = s.gpu.Disable(false, idle.channels())
	letGo(idle.job)
	s.row("off and on before it has work", answered(errors.Join(err, onErr)), fmt.Sprintf("kernels a second %.0f", s.rate(idle)))
	gone, err := s.gpu.Disable(true, append(idle.channels(), channels.Channel{Client: 0xc1dfffff, Handle: 0x5cffffff}))
	s.row("off by root's own client, one gone", answered(err), fmt.Sprintf("%d gone, kernels a second %.0f", len(gone), s.rate(idle)))
	_, err = s.gpu.Disable(false, idle.channels())
	s.row("on again", answered(err), fmt.Sprintf("kernels a second %.0f", s.rate(idle)))
}

// tenantsSlices are those of the two while the log is read.
var tenantsSlices = []time.Duration{3 * time.Millisecond, 7 * time.Millisecond}

func (s *script) log() {
	l := must(s.gpu.OpenLog())
	defer l.Close()
	read := func(d time.Duration) (all []channels.Record, dropped uint64) {
		for end := time.Now().Add(d); time.Now().Before(end); s.pause(20 * time.Millisecond) {
			records, n, err := l.Poll(true)
			if err != nil {
				panic(err)
			}
			all, dropped = append(all, records...), dropped+n
		}
		return all, dropped
	}
	read(500 * time.Millisecond)
	clock := must(s.gpu.ClockNS())
	records, dropped := read(2 * time.Second)
	passed := must(s.gpu.ClockNS()) - clock
	kinds := map[string]int{}
	for _, r := range records {
		kinds[fmt.Sprintf("kind %d tag %d", r.Kind, r.Tag)]++
	}
	s.row("log, two tenants, slices of 3 and 7 ms", fmt.Sprintf("%d records in %.2f s, dropped %d", len(records), float64(passed)/1e9, dropped), fmt.Sprint(kinds))
	for i, a := range s.all {
		resident, median := onFor(records, uint32(a.pid))
		s.row(fmt.Sprintf("log, tenant %d", i), fmt.Sprintf("resident %.1f %%, a turn of %.2f ms in the middle", 100*float64(resident)/float64(passed), float64(median)/1e6))
		saved, err := a.owner.Saves(a.group())
		s.row(fmt.Sprintf("saves (20801215), tenant %d", i), fmt.Sprintf("%+v", saved), answered(err))
	}
	s.row("between an end and the next start", fmt.Sprintf("%.3f ms in the middle", float64(switchNS(records))/1e6))
	resident, err := s.gpu.Resident()
	s.row("resident channel (2080121c), two tenants", fmt.Sprintf("%#x", resident), answered(err), "numbers in the log: "+numbers(records))
}

// onFor is for how long a process was on, and the middle of its turns.
func onFor(records []channels.Record, pid uint32) (total, middle int64) {
	var began int64
	var lengths []int64
	for _, r := range records {
		switch {
		case r.PID != pid:
		case r.Starts():
			began = r.AtNS
		case r.Ends() && began != 0:
			lengths = append(lengths, r.AtNS-began)
			total += r.AtNS - began
			began = 0
		}
	}
	return total, median(lengths)
}

func switchNS(records []channels.Record) int64 {
	var ended int64
	var all []int64
	for _, r := range records {
		switch {
		case r.Ends():
			ended = r.AtNS
		case r.Starts() && ended != 0:
			all = append(all, r.AtNS-ended)
			ended = 0
		}
	}
	return median(all)
}

func numbers(records []channels.Record) string {
	found := map[uint32]bool{}
	for _, r := range records {
		found[r.Channel] = true
	}
	var said []string
	for number := range found {
		said = append(said, fmt.Sprintf("%#x", number))
	}
	sort.Strings(said)
	return strings.Join(said, " ")
}

// deaths kills one while it is off.
func (s *script) deaths() {
	a := s.all[0]
	theirs, used := a.channels(), s.usedMiB()
	_, err := s.gpu.Disable(true, theirs)
	s.row("off, before it is killed", answered(err))
	killed(a.pid)
	began := time.Now()
	s.comes(3*time.Second, a.owner.Ended)
	s.row("killed while it was off", fmt.Sprintf("gone after %d ms", time.Since(began).Milliseconds()))
	s.comes(2*time.Second, func() bool { return s.usedMiB() < used })
	s.row("its memory", fmt.Sprintf("back after %d ms, %d MiB of %d left", time.Since(began).Milliseconds(), s.usedMiB(), used))
	s.row("slice of who is gone", answered(a.owner.Verify(a.group())))
	gone, err := s.gpu.Disable(false, theirs)
	s.row("its channels on", answered(err), fmt.Sprintf("%d of %d gone", len(gone), len(theirs)))
	s.row("the other's kernels a second", fmt.Sprintf("%.0f", s.rate(s.all[1])))
}

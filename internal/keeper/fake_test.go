// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
	"github.com/slurm-vgpu/slurm-vgpu/test/timeslices"
)

const (
	ms   = time.Millisecond
	us   = time.Microsecond
	boot = "a-boot"
	uuid = device.UUID("GPU-a")
)

// machine is a node whose GPU, driver and clock are played. Group i is of process 100+i, client 1000+i.
type machine struct {
	busy     map[int]time.Duration // of each group, when it was asked who is at work
	t        *testing.T
	gpu      *timeslices.GPU
	k        *keeper
	run      rundir.Dir
	jobs     []uint32 // of each group
	node     Node
	logs     []*fakeLog
	active   time.Duration // by the last look
	shown    time.Duration // by the counter
	shownAt  time.Duration
	lookedAt time.Duration
	open     int // files of the GPU that are
	killed   map[int]bool
	started  time.Duration         // all processes
	starts   map[int]time.Duration // those that started at another time
	strange  map[int]uint32        // what NVML shows as well
	heirs    []Heir                // who has descriptors of those that are killed and shown all the same
	taken    map[uint32]bool       // clients whose numbers are of another now
	stolen   int                   // the process whose client's number is another's now
	attached map[int]bool          // who has a place in his job's ledger
	second   time.Duration         // slice of any process's second group, which has no work
	asked    int                   // how often NVML was
	calls    map[string]int
	offs     map[channels.Channel]bool
	off      map[uint32]bool // clients that were taken off
	refuses  error
	stays    error // what the driver says where somebody is to be off
	sticks   int   // so many calls do not let anybody on
	refused  chan device.UUID
	accepted chan device.UUID
	saves    map[uint32]*channels.Saves
	answers  []string
	beats    []byte
	log      hclog.Logger
	cheaters string
	late     func() time.Duration // that something is done after its time
	loses    func() bool          // a record
}

func (m *machine) Write(word []byte) (int, error) {
	m.beats = append(m.beats, word...)
	return len(word), nil
}

// played is a node with a job of each share, and a group of each job, with these loads; libcuda's slice is 2 ms.
func played(t *testing.T, percents []int, loads ...timeslices.Load) *machine {
	t.Helper()
	var groups []*timeslices.Group
	for i, load := range loads {
		groups = append(groups, &timeslices.Group{Load: load, Slice: 2 * ms, PID: uint32(100 + i)})
	}
	m := &machine{t: t, gpu: timeslices.NewGPU(timeslices.Change{Load: 127 * us, Save: 110 * us}, groups...), run: rundir.Dir(inMemory(t)),
		killed: map[int]bool{}, starts: map[int]time.Duration{}, strange: map[int]uint32{}, attached: map[int]bool{}, busy: map[int]time.Duration{}, refused: make(chan device.UUID, 1), accepted: make(chan device.UUID, 1),
		calls: map[string]int{}, offs: map[channels.Channel]bool{}, saves: map[uint32]*channels.Saves{}}
	m.gpu.Now = time.Hour // a clock that began long ago
	m.started = m.gpu.Now
	m.gpu.Log = func(s share.Switch) {
		r := channels.Record{Kind: 2, Tag: 6, Serial: s.Serial, Channel: s.Context, PID: s.PID, AtNS: s.AtNS}
		if s.End {
			r.Tag = 7
		}
		for _, l := range m.logs {
			l.records = append(l.records, r)
		}
	}
	m.node.GPUs = []NodeGPU{{GPU: GPU{UUID: uuid, Address: "0000:01:00.0"}}}
	for i, percent := range percents {
		job := uint32(i + 1)
		m.node.GPUs[0].Slices = append(m.node.GPUs[0].Slices, Slice{Job: job, UID: 1000 + job, SMPercent: percent, Elastic: true})
		m.page(job)
	}
	for i := range loads {
		m.jobs = append(m.jobs, uint32(i%len(percents)+1))
	}
	m.shownAt, m.cheaters, m.log = m.gpu.Now, "freeze", hclog.New(&hclog.LoggerOptions{Output: testWriter{m.t}, Level: hclog.Debug})
	m.begin()
	return m
}

func (m *machine) page(job uint32) {
	m.t.Helper()
	if err := os.MkdirAll(m.run.Pages(job), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := ledger.CreateTime(m.run.Time(job), job, 1); err != nil {
		m.t.Fatal(err)
	}
}

// begin has a new loop, as after the death of one.
func (m *machine) begin() {
	parts := Parts{Log: m.log, Run: m.run, BootID: boot, Cheaters: m.cheaters,
		Burst: 250 * ms, Driver: func() (Driver, error) { m.open++; return fakeDriver{m}, m.refuses }, Clock: func() time.Duration { return m.gpu.Now },
		StartOf:  func(pid int) (uint64, bool) { return m.start(pid), !m.killed[pid-100] },
		Refuse:   func(gpu device.UUID) error { m.refused <- gpu; return nil },
		Accept:   func(gpu device.UUID) error { m.accepted <- gpu; return nil },
		Attached: func(p Process) bool { return m.attached[p.PID] },
		Step: func(p Process, _ bool) (Frozen, error) {
			m.answers = append(m.answers, "step")
			return Frozen{Job: p.Job, Step: "0"}, nil
		}}
	m.k = newKeeper(parts, m)
	m.k.samples = &samples{asked: make(chan question, 1)}
	m.k.tickClock()
}

// start is when a process began, in ticks.
func (m *machine) start(pid int) uint64 {
	if at, known := m.starts[pid]; known {
		return uint64(at / ledger.Tick)
	}
	return uint64(m.started / ledger.Tick)
}

// members has the loop take the node: these groups, by their number, are there.
func (m *machine) members(groups ...int) {
	m.node.Processes = nil
	for _, i := range groups {
		pid := int(m.gpu.Groups[i].PID)
		named := ledger.Group{Client: uint32(1000 + i), Device: 1, Group: 1, Engine: 1, FD: 9, Subdevice: 2, ChannelCount: 2, Channels: []uint32{3, 4}}
		if n := len(m.node.Processes); n > 0 && m.node.Processes[n-1].PID == pid {
			m.node.Processes[n-1].Groups = append(m.node.Processes[n-1].Groups, named)
			continue
		}
		m.node.Processes = append(m.node.Processes, Process{Process: audit.Process{PID: pid, StartTicks: m.start(pid)}, Job: m.jobs[i], Groups: []ledger.Group{named}})
	}
	m.take()
}

// another has a process name a second group.
func (m *machine) another(process int) {
	p := &m.node.Processes[process]
	p.Groups = append(p.Groups, p.Groups[0])
	p.Groups[1].Group = secondGroup
	m.take()
}

func (m *machine) take() {
	m.k.tickClock()
	m.k.take(m.node)
	m.k.putPages()
	m.k.goesOn()
}

// play lets time pass, with the loop in it.
func (m *machine) play(d time.Duration) {
	for until := m.gpu.Now + d; m.gpu.Now < until; {
		next := m.k.next()
		if m.late != nil && next > 0 {
			next += m.late()
		}
		if next == 0 || next > until {
			next = until
		}
		m.runs(next)
		m.k.tickClock()
		m.k.onTime()
		select {
		case q := <-m.k.samples.asked:
			m.answer(q)
		default:
		}
		for len(m.k.asking) > 0 {
			m.k.hold(<-m.k.steps)
		}
		m.k.putPages()
		m.k.goesOn()
	}
}

// counterMoves is how often the GPU's counter does (docs/verified/time-from-outside.md).
const counterMoves = 100 * ms

// runs has the GPU work, and its counter follow.
func (m *machine) runs(until time.Duration) {
	for {
		if m.gpu.Now >= m.shownAt+counterMoves {
			m.shown, m.shownAt = m.gpu.Active, m.gpu.Now
		}
		if m.gpu.Now >= until {
			return
		}
		m.gpu.Run(min(until, m.shownAt+counterMoves))
	}
}

func (m *machine) answer(q question) {
	if len(q.gpus) == 0 {
		return
	}
	m.asked++
	s := sampled{active: map[device.UUID]float64{}}
	if gone := m.shownAt - m.lookedAt; gone > 0 && m.lookedAt >= 0 {
		s.active[uuid] = min(1, float64(m.shown-m.active)/float64(gone))
	}
	m.active, m.lookedAt = m.shown, m.shownAt
	if len(q.only) > 0 {
		s.only = m.only()
	}
	if q.holders {
		holders := map[int]uint32{}
		for _, p := range m.node.Processes {
			holders[p.PID] = p.Job
		}
		var orphans Orphans
		for pid, job := range m.strange {
			if holders[pid] = job; m.killed[pid-100] {
				delete(holders, pid)
				orphans.PIDs, orphans.Heirs = append(orphans.PIDs, pid), m.heirs
			}
		}
		s.holders, s.orphans = map[device.UUID]map[int]uint32{uuid: holders}, map[device.UUID]Orphans{uuid: orphans}
	}
	m.k.lookAll(s)
}

// only is the one process at work since it was asked last.
func (m *machine) only() map[device.UUID]int {
	worked := []int{}
	for i, g := range m.gpu.Groups {
		if g.Busy > m.busy[i] {
			worked = append(worked, int(g.PID))
		}
		m.busy[i] = g.Busy
	}
	if len(worked) != 1 {
		return nil
	}
	return map[device.UUID]int{uuid: worked[0]}
}

// had is which part of a time each group had, in percent.
func (m *machine) had(d time.Duration) (percents []float64) {
	before := make([]time.Duration, len(m.gpu.Groups))
	for i, g := range m.gpu.Groups {
		before[i] = g.Busy
	}
	from := m.gpu.Now
	m.play(d)
	for i, g := range m.gpu.Groups {
		percents = append(percents, 100*float64(g.Busy-before[i])/float64(m.gpu.Now-from))
	}
	return percents
}

func (m *machine) time(job uint32) ledger.TimeDevice {
	m.t.Helper()
	devices, err := ledger.ReadTime(m.run.Time(job), job)
	if err != nil || len(devices) != 1 {
		m.t.Fatal(devices, err)
	}
	return devices[0]
}

func (m *machine) recordIs(there bool) {
	m.t.Helper()
	if _, err := os.Stat(m.run.VgpudOff()); (err == nil) != there {
		m.t.Errorf("the record is there: %v, want %v", err == nil, there)
	}
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(text []byte) (int, error) {
	w.t.Log(filepath.Base(string(text)))
	return len(text), nil
}

type fakeDriver struct{ *machine }

func (d fakeDriver) GPU(g GPU) (Device, error) {
	d.open++
	return fakeDevice{d.machine, uint32(slices.IndexFunc(d.node.GPUs, func(n NodeGPU) bool { return n.UUID == g.UUID }))}, nil
}
func (d fakeDriver) Close() { d.open-- }
func (d fakeDriver) Owner(pid int) (Owner, error) {
	return fakeOwner{d.machine, pid}, nil
}

type fakeDevice struct {
	*machine
	instance uint32
}

// secondGroup is the handle of a group that never has work.
const secondGroup = 2

// absent is a channel that no client has.
const absent = 99

func (d fakeDevice) DeviceInstance() uint32  { return d.instance }
func (d fakeDevice) ClockNS() (int64, error) { return int64(d.gpu.Now), nil }
func (d fakeDevice) Close()                  { d.open-- }
func (d fakeDevice) OpenLog() (Log, error) {
	d.open++
	l := &fakeLog{machine: d.machine}
	d.logs = append(d.logs, l)
	return l, nil
}

func (d fakeDevice) Disable(disable bool, of []channels.Channel) (gone []channels.Channel, err error) {
	d.calls["disable"]++
	if len(of) > channels.MostChannels {
		d.t.Errorf("%d channels in one call", len(of))
	}
	d.gpu.Run(d.gpu.Now + 700*us)
	if disable && d.stays != nil || !disable && d.sticks > 0 {
		d.sticks--
		return nil, d.stays
	}
	if disable {
		if _, err := os.Stat(d.run.VgpudOff()); err != nil {
			d.t.Error("somebody is off, and nothing is written down")
		}
		if len(d.beats) == 0 || Doing(d.beats[len(d.beats)-1]) != Holding {
			d.t.Error("somebody is off, and the supervisor does not know")
		}
	}
	for _, c := range of {
		if c.Handle == absent {
			d.calls["absent"]++
			gone = append(gone, c)
			continue
		}
		if disable && d.offs[c] {
			d.t.Errorf("%v is taken off twice: the driver counts", c)
		}
		if d.offs[c] = disable; disable {
			if d.off == nil {
				d.machine.off = map[uint32]bool{}
			}
			d.off[c.Client] = true
		}
		if i := int(c.Client) - 1000; i >= 0 && i < len(d.gpu.Groups) && (!d.killed[i] || d.strange[100+i] != 0) {
			d.gpu.Groups[i].Off = disable
		}
	}
	return gone, nil
}

type fakeLog struct {
	*machine
	records []channels.Record
}

func (l *fakeLog) Close() {
	l.open--
	l.logs = slices.DeleteFunc(l.logs, func(other *fakeLog) bool { return other == l })
}

func (l *fakeLog) Poll(bool) ([]channels.Record, uint64, error) {
	found := l.records
	l.records = nil
	if l.loses != nil {
		found = slices.DeleteFunc(found, func(channels.Record) bool { return l.loses() })
	}
	return found, 0, nil
}

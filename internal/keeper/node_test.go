// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// site is a run directory with one GPU, on which job 7 has a slice and a process of this user's claims to be its.
type site struct {
	t    *testing.T
	here *Here
	uid  uint32
}

func newSite(t *testing.T) *site {
	t.Helper()
	run := rundir.Dir(t.TempDir())
	s := &site{t: t, uid: uint32(os.Getuid())}
	s.here = &Here{Store: state.Store{Dir: run, BootID: boot, Log: hclog.NewNullLogger()}, Auditor: audit.Here(run)}
	s.must(inventory.Write(run.Inventory(), device.Inventory{BootID: boot, GPUs: []device.GPU{{UUID: uuid, Minor: 3, PCIBusID: "00000000:01:00.0", MemMiB: 1000}}}))
	tx, err := s.here.Store.Begin(t.Context())
	s.must(err)
	tx.Put(7, []state.Slice{{Job: 7, UID: s.uid, Elastic: true, Slice: device.Slice{Device: uuid, MemMiB: 10, SMPercent: 30, Priority: device.PriorityLatency}}})
	s.must(tx.Commit())
	tx.End()
	return s
}

func (s *site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) pages() {
	s.t.Helper()
	run := s.here.Store.Dir
	s.must(os.MkdirAll(run.Pages(7), 0o755))
	s.must(ledger.CreateGroups(run.Groups(7), 7, s.uid, uint32(os.Getgid())))
	s.must(ledger.CreateTime(run.Time(7), 7, 1))
}

// process is one of the user's whose environment says that it is of job 7, as where Slurm has no cgroups.
func (s *site) process(job int) audit.Process {
	s.t.Helper()
	cmd := exec.Command("sleep", "60")
	cmd.Env = []string{fmt.Sprintf("VGPU_STEP_DIR=%s/%d/steps/0", s.here.Store.Dir.Jobs(), job)}
	s.must(cmd.Start())
	s.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(ms) {
		if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", cmd.Process.Pid)); string(name) == "sleep\n" { // it has its environment
			break
		}
	}
	start, ok := s.here.Auditor.StartOf(cmd.Process.Pid)
	if !ok {
		s.t.Fatal("no such process")
	}
	return audit.Process{PID: cmd.Process.Pid, StartTicks: start}
}

// claims writes into a place of the page what a process would.
func (s *site) claims(place int, p audit.Process) {
	s.t.Helper()
	var st syscall.Stat_t
	s.must(syscall.Stat("/proc/self/ns/pid", &st))
	const at, each = 32, 3104
	text := binary.LittleEndian.AppendUint64(nil, p.StartTicks)
	text = binary.LittleEndian.AppendUint64(text, st.Ino)
	for _, word := range []uint32{uint32(p.PID), 1, 0, 2, 0xc1d0001e, 1, 5, 1, 0, 9, 2, 1, 77} {
		text = binary.LittleEndian.AppendUint32(text, word)
	}
	file, err := os.OpenFile(s.here.Store.Dir.Groups(7), os.O_WRONLY, 0)
	s.must(err)
	_, err = file.WriteAt(text, at+each*int64(place))
	s.must(err)
	s.must(file.Close())
}

// attach writes into a slot of the ledger what the library in a process would.
func (s *site) attach(slot int, p audit.Process) {
	s.t.Helper()
	var st syscall.Stat_t
	s.must(syscall.Stat("/proc/self/ns/pid", &st))
	const at, each = 64 + 4*128 + 256*520, 320
	text := binary.LittleEndian.AppendUint32(nil, 1)
	text = binary.LittleEndian.AppendUint32(text, uint32(p.PID))
	text = binary.LittleEndian.AppendUint64(text, p.StartTicks)
	text = binary.LittleEndian.AppendUint64(text, st.Ino)
	file, err := os.OpenFile(s.here.Store.Dir.Ledger(7), os.O_WRONLY, 0)
	s.must(err)
	_, err = file.WriteAt(text, at+each*int64(slot))
	s.must(err)
	s.must(file.Close())
}

func TestTheNodeIsReadAndNoClaimIsBelieved(t *testing.T) {
	s := newSite(t)
	node, err := s.here.Look()
	if err == nil || len(node.GPUs) != 1 || len(node.Processes) != 0 {
		t.Fatalf("before its pages are there: %+v, %v", node, err)
	}
	s.pages()
	mine, others := s.process(7), s.process(8)
	s.claims(0, mine)
	s.claims(1, others)                                                               // of another job
	s.claims(2, audit.Process{PID: mine.PID, StartTicks: mine.StartTicks + 1})        // of an earlier process of that number
	s.claims(3, audit.Process{PID: os.Getpid(), StartTicks: startOf(t, os.Getpid())}) // of none
	node, err = s.here.Look()
	if err != nil {
		t.Fatal(err)
	}
	want := Slice{Job: 7, UID: s.uid, SMPercent: 30, Elastic: true, Latency: true}
	if g := node.GPUs[0]; g.Slices[0] != want || g.Minor != 3 || g.Address != "00000000:01:00.0" {
		t.Errorf("%+v", g)
	}
	if len(node.Processes) != 1 || node.Processes[0].Process != mine || node.Processes[0].Job != 7 || len(node.Processes[0].Groups) != 1 {
		t.Errorf("%+v, want process %+v alone", node.Processes, mine)
	}
	if _, err := s.here.Step(Process{Process: others, Job: 7, UID: s.uid}, false); err == nil {
		t.Error("a process of another job would be frozen")
	}
	if _, err := s.here.Step(Process{Process: audit.Process{PID: mine.PID, StartTicks: 1}, Job: 7, UID: s.uid}, false); err == nil {
		t.Error("a later process of the same number would be frozen")
	}
	if f, err := s.here.Step(Process{Process: mine, Job: 7, UID: s.uid}, false); err != nil || len(f.Processes) != 1 || f.Processes[0] != mine {
		t.Errorf("%+v, %v", f, err)
	}
}

// A slice that never has more than its cap goes before no other.
func TestACappedSliceIsNotOfTheLatencyClass(t *testing.T) {
	s := newSite(t)
	s.pages()
	tx, err := s.here.Store.Begin(t.Context())
	s.must(err)
	tx.Change(func(slice *state.Slice) { slice.Elastic = false })
	s.must(tx.Commit())
	tx.End()
	node, err := s.here.Look()
	s.must(err)
	if want := (Slice{Job: 7, UID: s.uid, SMPercent: 30}); len(node.GPUs) != 1 || node.GPUs[0].Slices[0] != want {
		t.Errorf("%+v, want %+v", node.GPUs, want)
	}
}

// Whose library has a place in the ledger is known there by what he is called in his own namespace.
func TestWhoIsAttachedStandsInTheLedger(t *testing.T) {
	s := newSite(t)
	s.pages()
	mine, other := s.process(7), s.process(7)
	is := func(p audit.Process) bool { return s.here.Attached(Process{Process: p, Job: 7, UID: s.uid}) }
	if is(mine) {
		t.Error("there is no ledger")
	}
	s.must(ledger.Create(s.here.Store.Dir.Ledger(7), 7, 1, s.uid, uint32(os.Getgid())))
	if is(mine) {
		t.Error("the ledger is empty")
	}
	s.attach(3, mine)
	if !is(mine) || is(other) || is(audit.Process{PID: mine.PID, StartTicks: mine.StartTicks + 1}) {
		t.Errorf("process %+v is attached, and no other one", mine)
	}
	s.attach(3, audit.Process{PID: mine.PID, StartTicks: mine.StartTicks - 1})
	if is(mine) {
		t.Error("an earlier process of that number was")
	}
}

func startOf(t *testing.T, pid int) uint64 {
	t.Helper()
	start, ok := auditor.StartOf(pid)
	if !ok {
		t.Fatal("no such process")
	}
	return start
}

func TestAGPUThatTheDriverRefusesIsKnown(t *testing.T) {
	s := newSite(t)
	s.pages()
	for _, refused := range []bool{true, false} {
		if refused {
			s.must(s.here.Refuse(uuid))
		} else {
			s.must(s.here.Accept(uuid))
		}
		if node, err := s.here.Look(); err != nil || len(node.GPUs) != 1 || node.GPUs[0].Refused != refused {
			t.Errorf("%+v, %v", node, err)
		}
	}
}

func TestChangesAreHeard(t *testing.T) {
	s := newSite(t)
	s.pages()
	changes, err := WatchRun(s.here.Store.Dir)
	s.must(err)
	defer changes.Close()
	hears := func(what string, want bool) {
		t.Helper()
		wait := time.Minute
		if !want {
			wait = 200 * ms
		}
		select {
		case <-changes.C():
			if !want {
				t.Errorf("%s is heard", what)
			}
		case <-time.After(wait):
			if want {
				t.Errorf("%s is not heard", what)
			}
		}
	}
	s.must(os.WriteFile(filepath.Join(string(s.here.Store.Dir), "counts.json"), nil, 0o644))
	hears("another file", false)
	tx, err := s.here.Store.Begin(t.Context())
	s.must(err)
	tx.Put(8, []state.Slice{{Job: 8, UID: s.uid, Slice: device.Slice{Device: uuid, MemMiB: 10}}})
	s.must(tx.Commit())
	tx.End()
	hears("a new state", true)
	s.must(changes.Watch([]uint32{7, 8}))
	hears("that a page is watched from now on", true)
	hears("nothing", false)
	s.claims(0, audit.Process{PID: 1, StartTicks: 1})
	hears("what a process writes", true)
	s.must(changes.Watch(nil))
	s.claims(0, audit.Process{PID: 1, StartTicks: 2})
	hears("what a process of a job writes that is gone", false)
}

// A program that was killed stands in its page for long. Those that come after it are found all the same.
func TestWhoHasEndedHidesNobody(t *testing.T) {
	const job = 7
	h := Here{Auditor: audit.Auditor{Proc: "/proc", WholeNode: true}}
	uid := uint32(os.Getuid())
	self, ok := h.Auditor.InsideOf(os.Getpid())
	if !ok {
		t.Fatal("this process is not in /proc")
	}
	look := func(c audit.Inside) bool {
		h.users, h.later = map[uint32]map[audit.Inside]int{}, false
		_, found := h.find(claim{c, job}, uid)
		return found
	}
	for began := time.Now(); time.Since(began) < 700*ms; time.Sleep(10 * ms) {
		if look(audit.Inside{PID: 1 << 30, PIDNS: self.PIDNS, StartTicks: 1}) {
			t.Fatal("a process that is not there is found")
		}
	}
	if !look(self) {
		t.Error("a new one is not found, as one has ended before")
	}
}

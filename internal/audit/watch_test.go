// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// scene is a node with two GPUs, whose driver says what the test wants it to.
type scene struct {
	t     *testing.T
	proc  proc
	run   rundir.Dir
	held  []state.Slice
	looks []map[device.UUID]discover.Holders // one after the other; the last one stays
	asked int
	told  map[Slice]uint64 // of jobs with a wall
}

func newScene(t *testing.T) *scene {
	t.Helper()
	return &scene{t: t, proc: proc{t, t.TempDir()}, run: rundir.Dir(t.TempDir())}
}

// granted gives a job a slice of 1000 MiB on each of these GPUs, and a ledger.
func (s *scene) granted(job, uid uint32, whole bool, uuids ...device.UUID) {
	s.t.Helper()
	g := grant.Grant{Job: job, UID: uid, Whole: whole}
	for _, uuid := range uuids {
		slice := device.Slice{Device: uuid, MemMiB: 1000}
		g.Slices = append(g.Slices, slice)
		s.held = append(s.held, state.Slice{Job: job, UID: uid, Slice: slice})
	}
	err := errors.Join(os.MkdirAll(s.run.Job(job), 0o755), os.MkdirAll(s.run.Pages(job), 0o755), grant.Write(s.run.Grant(job), g),
		ledger.Create(s.run.Ledger(job), job, len(uuids), uint32(os.Getuid()), uint32(os.Getgid())))
	if err != nil {
		s.t.Fatal(err)
	}
}

// Where struct vgpu_ledger has its slots, and a slot its fields.
const (
	firstSlot, slotBytes          = 64 + 4*128 + 256*520, 320
	slotState, slotPID, slotPIDNS = 0, 4, 16
	slotUsed                      = 32
)

// slot writes what a process of a job says of its first slice.
func (s *scene) slot(job uint32, number int, pid int32, pidns, bytes uint64) {
	s.t.Helper()
	at := int64(firstSlot + number*slotBytes)
	file, err := os.OpenFile(s.run.Ledger(job), os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	defer file.Close()
	for offset, value := range map[int64][]byte{
		slotState: binary.LittleEndian.AppendUint32(nil, 1),
		slotPID:   binary.LittleEndian.AppendUint32(nil, uint32(pid)),
		slotPIDNS: binary.LittleEndian.AppendUint64(nil, pidns),
		slotUsed:  binary.LittleEndian.AppendUint64(nil, bytes),
	} {
		if _, err := file.WriteAt(value, at+offset); err != nil {
			s.t.Fatal(err)
		}
	}
}

// process puts one into Slurm's cgroup of a job; job 0 is none.
func (s *scene) process(pid int, uid, job uint32) {
	s.t.Helper()
	s.proc.process(pid, uid)
	s.proc.write(pid, "stat", fmt.Sprintf("%d (a) b) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", pid, pid))
	s.proc.write(pid, "comm", fmt.Sprintf("p%d\x1b\n", pid))
	if job != 0 {
		s.proc.write(pid, "cgroup", fmt.Sprintf("0::/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0\n", job))
	}
}

func (s *scene) find(ignore ...uint32) Found {
	s.t.Helper()
	w := Watcher{Auditor: Auditor{Run: s.run, Proc: s.proc.dir, WholeNode: true}, Pace: Pace{Samples: 2}, Ignore: map[uint32]bool{},
		GPUs: []device.GPU{{UUID: gpu}, {UUID: other, Index: 1}, {UUID: "GPU-lost", Index: 2, Lost: "MIG mode is on"}},
		Held: func() ([]state.Slice, error) { return s.held, nil },
		Ask: func(uuids []device.UUID) (map[device.UUID]discover.Holders, error) {
			if len(uuids) != 2 {
				s.t.Errorf("asked for %v", uuids)
			}
			now := s.looks[min(s.asked, len(s.looks)-1)]
			s.asked++
			return now, nil
		},
		Told: func(of Slice) (uint64, bool) { bytes, has := s.told[of]; return bytes, has }}
	for _, uid := range ignore {
		w.Ignore[uid] = true
	}
	found, err := w.Find(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return found
}

// kinds is what was found, in short: "no-job 12 0/7".
func kinds(found Found) (short []string) {
	for _, s := range found.Strays {
		short = append(short, fmt.Sprintf("%s %d %d/%d", s.Kind, s.PID, s.Index, s.Job))
	}
	return short
}

func (s *scene) want(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, kinds(s.find())); diff != "" {
		s.t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEachKindOfStrayIsFound(t *testing.T) {
	s := newScene(t)
	s.granted(7, 1000, false, gpu)
	s.granted(8, 1001, false, other)
	for pid, job := range map[int]uint32{10: 7, 11: 0, 12: 8, 13: 7, 14: 7, 15: 99} {
		s.process(pid, 1000, job)
	}
	s.slot(7, 0, 10, 0, 300*mib)
	s.slot(7, 1, 14, 0, 100*mib)
	s.looks = []map[device.UUID]discover.Holders{on(held(10, 300*mib), held(11, 1), held(12, 2*mib), held(13, 3*mib), held(14, 400*mib), held(15, mib))}
	s.want("no-job 11 0/0", "no-slice 12 0/8", "not-in-ledger 13 0/7", "unaccounted 14 0/7", "no-slice 15 0/99")

	found := s.find()
	first, unaccounted := found.Strays[0], found.Strays[3]
	if first.Name != "p11?" || first.UID != 1000 || *first.MiB != 1 || unaccounted.AccountedMiB != 100 || *unaccounted.MiB != 400 {
		t.Errorf("%+v, %+v", first, unaccounted)
	}
	for i, ends := range []bool{false, true, true, false, true} {
		if found.Strays[i].Ends() != ends {
			t.Errorf("%s: its job is cancelled: %v", found.Strays[i].Kind, !ends)
		}
		if says := found.Strays[i].Says(); says == "" || strings.Contains(says, string(found.Strays[i].Kind)) {
			t.Errorf("%s is said as %q", found.Strays[i].Kind, says)
		}
	}
}

// What one sample or one look sees, and another does not, was somebody at work.
func TestWhoComesAndGoesIsNoStray(t *testing.T) {
	s := newScene(t)
	s.granted(7, 1000, false, gpu)
	for pid := 10; pid < 14; pid++ {
		s.process(pid, 1000, 7)
	}
	s.slot(7, 0, 10, 0, 300*mib)
	nobody, some := on(), on(held(10, 900*mib), held(11, mib))
	less := on(held(10, 300*mib), held(11, mib))
	for name, looks := range map[string][]map[device.UUID]discover.Holders{
		"one sample":              {some, nobody},
		"the first look":          {some, some, nobody, nobody},
		"the second":              {nobody, nobody, some, some},
		"one process, then other": {on(held(11, mib)), on(held(11, mib)), on(held(12, mib)), on(held(12, mib))},
		"gone by then":            {on(held(99, mib))},
	} {
		s.looks, s.asked = looks, 0
		if got := kinds(s.find()); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	s.looks, s.asked = []map[device.UUID]discover.Holders{some, less, some, less}, 0 // a program that allocates and frees
	s.want("not-in-ledger 11 0/7")
	s.looks, s.asked = []map[device.UUID]discover.Holders{nobody}, 0
	if s.find(); s.asked != 2 {
		t.Errorf("with nothing to look at again NVML was asked %d times, want 2", s.asked)
	}
}

// A later process with the same pid is another one.
func TestAPidThatIsAnothersIsNoStray(t *testing.T) {
	s := newScene(t)
	s.process(10, 1000, 0)
	s.looks = []map[device.UUID]discover.Holders{on(held(10, mib))}
	s.want("no-job 10 0/0")
	w := Watcher{Auditor: Auditor{Run: s.run, Proc: s.proc.dir, WholeNode: true}, Pace: Pace{Samples: 1}, GPUs: []device.GPU{{UUID: gpu}},
		Held: func() ([]state.Slice, error) { return nil, nil },
		Ask: func([]device.UUID) (map[device.UUID]discover.Holders, error) {
			s.proc.write(10, "stat", fmt.Sprintf("10 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", time.Now().UnixNano()))
			return on(held(10, mib)), nil
		}}
	if found, err := w.Find(context.Background()); err != nil || len(found.Strays) != 0 {
		t.Errorf("%v, %+v", err, found)
	}
}

// Who began after the driver was first asked has its pid from one that the driver still named: neither his own job nor
// his job's other processes answer for that memory.
func TestAPidOfSomebodyGoneIsHeldAgainstNobody(t *testing.T) {
	s := newScene(t)
	s.granted(7, 1000, false, gpu)
	s.process(10, 1000, 7)
	s.slot(7, 0, 10, 0, 300*mib)
	s.looks = []map[device.UUID]discover.Holders{on(held(10, 1<<40))}
	s.want("unaccounted 10 0/7", "over-limit 0 0/7")
	s.proc.write(10, "stat", fmt.Sprintf("10 (x) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 0 0\n", ticks()+1000))
	s.want()
}

func TestWhoIsNoStray(t *testing.T) {
	s := newScene(t)
	s.granted(7, 1000, true, gpu)    // whole
	s.granted(8, 1001, false, other) // of which only the ledger is not there yet
	if err := os.Remove(s.run.Ledger(8)); err != nil {
		t.Fatal(err)
	}
	s.process(10, 1000, 7)
	s.process(11, 0, 0)
	s.process(12, 1001, 8)
	s.looks = []map[device.UUID]discover.Holders{{gpu: on(held(10, 1<<40), held(11, mib))[gpu], other: {Processes: []discover.Held{held(12, 500*mib)}}}}
	if got := kinds(s.find(0)); got != nil {
		t.Errorf("%v", got)
	}
	s.want("no-job 11 0/0")
	// In a container root may be anybody.
	s.namespace(11, 4711)
	s.namespace(0, 4026531836)
	if got := kinds(s.find(0)); len(got) != 1 {
		t.Errorf("root in a container: %v", got)
	}
	s.namespace(11, 4026531836)
	if got := kinds(s.find(0)); got != nil {
		t.Errorf("root beside it: %v", got)
	}
}

// namespace puts a process into a pid namespace; 0 is who asks.
func (s *scene) namespace(pid, inode int) {
	s.t.Helper()
	dir := filepath.Join(s.proc.dir, strconv.Itoa(pid), "ns")
	if pid == 0 {
		dir = filepath.Join(s.proc.dir, "self", "ns")
	}
	_ = os.RemoveAll(dir)
	err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(fmt.Sprintf("pid:[%d]", inode), filepath.Join(dir, "pid")))
	if err != nil {
		s.t.Fatal(err)
	}
}

// In a container a process knows itself by another pid.
func TestAProcessInAContainerIsFoundInItsLedger(t *testing.T) {
	s := newScene(t)
	s.granted(7, 1000, false, gpu)
	s.process(10, 1000, 7)
	s.proc.write(10, "status", "Name:\tx\nUid:\t1000\t0\t0\t0\nNSpid:\t10\t3\n")
	s.namespace(10, 4711)
	s.namespace(0, 4026531836)
	s.looks = []map[device.UUID]discover.Holders{on(held(10, 300*mib))}
	s.slot(7, 0, 10, 4711, 300*mib)
	s.slot(7, 1, 3, 4712, 300*mib)
	s.want("not-in-ledger 10 0/7")
	s.slot(7, 1, 3, 4711, 300*mib)
	s.want()
}

func TestWhatCannotBeAskedIsSaid(t *testing.T) {
	s := newScene(t)
	s.looks = []map[device.UUID]discover.Holders{{gpu: {Err: errors.New("the GPU is lost")}}}
	if found := s.find(); len(found.Strays) != 0 || !cmp.Equal(found.Problems, []string{"the GPU is lost"}) {
		t.Errorf("%+v", found)
	}
	w := Watcher{Pace: Pace{Samples: 1}, Held: func() ([]state.Slice, error) { return nil, errors.New("no state") }}
	if _, err := w.Find(context.Background()); err == nil {
		t.Error("without a state nothing can be said")
	}
	w.Held = func() ([]state.Slice, error) { return nil, nil }
	w.Ask = func([]device.UUID) (map[device.UUID]discover.Holders, error) { return nil, errors.New("no NVML") }
	if _, err := w.Find(context.Background()); err == nil {
		t.Error("without NVML nothing can be said")
	}
}

func TestWhoHangsIsLeftBehind(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	if _, err := within(time.Millisecond, func() (int, error) { <-hang; return 0, nil }); err == nil || !strings.Contains(err.Error(), "not answered") {
		t.Errorf("got %v", err)
	}
	if n, err := within(time.Minute, func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
}

func TestUsers(t *testing.T) {
	lookup := func(name string) (string, error) {
		if name == "gdm" {
			return "120", nil
		}
		return "", errors.New("there is none")
	}
	want := map[uint32]bool{120: true, 0: true}
	if diff := cmp.Diff(want, Users([]string{"gdm", "0", "nobody-here", "-1"}, lookup)); diff != "" {
		t.Error(diff)
	}
}

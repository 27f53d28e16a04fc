// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

const gpu, other = device.UUID("GPU-a"), device.UUID("GPU-b")

// node is one on which the test says what the driver says.
type node struct {
	t      *testing.T
	run    rundir.Dir
	held   []state.Slice
	now    time.Time
	says   map[device.UUID][]discover.Used
	fails  error
	unseen error
	owners map[int]uint32
	asked  int
	vgpud  bool // runs
}

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{t: t, run: rundir.Dir(t.TempDir()), now: time.Now().Add(-time.Hour).Truncate(time.Second), owners: map[int]uint32{},
		says: map[device.UUID][]discover.Used{}}
}

// granted gives a job slices as from now.
func (n *node) granted(job uint32, percent int, uuids ...device.UUID) {
	n.t.Helper()
	g := grant.Grant{Version: grant.Version, Job: job, Since: n.now, GID: uint32(os.Getgid())}
	for i, uuid := range uuids {
		slice := device.Slice{Device: uuid, Index: device.NVMLIndex(i), MemMiB: 1000, SMPercent: percent}
		g.Slices = append(g.Slices, slice)
		n.held = append(n.held, state.Slice{Job: job, Since: state.MillisOf(n.now), Slice: slice})
	}
	err := errors.Join(os.MkdirAll(n.run.Job(job), 0o755), os.MkdirAll(n.run.Pages(job), 0o755), grant.Write(n.run.Grant(job), g),
		ledger.Create(n.run.Ledger(job), job, len(uuids), uint32(os.Getuid()), uint32(os.Getgid())))
	if err != nil {
		n.t.Fatal(err)
	}
}

// spent writes what a job's processes have used of its first slice by now.
func (n *node) spent(job uint32, usedMiB, busyMs, waitedMs uint64) {
	n.t.Helper()
	file, err := os.OpenFile(n.run.Ledger(job), os.O_WRONLY, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer file.Close()
	for offset, value := range map[int64]uint64{64: usedMiB << 20, 64 + 5*128: busyMs * 1e6, 64 + 6*128: waitedMs * 1e6} {
		if _, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, value), offset); err != nil {
			n.t.Fatal(err)
		}
	}
}

// busy makes the driver say that a process of a job had a part of each fifth of a second since the last look.
func (n *node) busy(uuid device.UUID, job uint32, percent int) {
	pid := 100 + int(job)
	n.owners[pid] = job
	for at := n.now.Add(200 * time.Millisecond); !at.After(n.now.Add(10 * time.Second)); at = at.Add(200 * time.Millisecond) {
		n.says[uuid] = append(n.says[uuid], discover.Used{PID: pid, AtUnixUs: uint64(at.UnixMicro()), SMPercent: percent})
	}
}

// look lets ten seconds pass and looks.
func (n *node) look(idleAfter time.Duration) Result {
	n.t.Helper()
	n.now = n.now.Add(10 * time.Second)
	result, err := Sampler{Run: n.run, Held: n.held, Now: n.now, IdleAfter: idleAfter, Counting: n.vgpud,
		Owners: func(_ []state.Slice, pids []int) (map[int]uint32, error) { return n.owners, n.unseen },
		Ask: func(since map[device.UUID]uint64) (map[device.UUID]audit.Utilization, error) {
			n.asked++
			all := make(map[device.UUID]audit.Utilization)
			for uuid, us := range since {
				answer := audit.Utilization{At: n.now}
				for _, s := range n.says[uuid] {
					if s.AtUnixUs > us {
						answer.Used = append(answer.Used, s)
					}
				}
				all[uuid] = answer
			}
			return all, n.fails
		}}.Look()
	if err != nil {
		n.t.Fatal(err)
	}
	return result
}

func (n *node) newest(job uint32) []timeline.Sample {
	n.t.Helper()
	g, err := grant.Read(n.run.Grant(job))
	if err != nil {
		n.t.Fatal(err)
	}
	return usage.Newest(n.run, g)
}

// sampled is what is known of a job's first slice by the driver's samples, to a tenth of a second; -1: nothing.
func (n *node) sampled(job uint32) int64 {
	n.t.Helper()
	if newest := n.newest(job); newest != nil && newest[0].SampledMs != nil {
		return (*newest[0].SampledMs + 50) / 100
	}
	return -1
}

func TestASliceWithAShareIsReadFromItsLedger(t *testing.T) {
	n := newNode(t)
	n.granted(7, 30, gpu, other)
	n.look(0)
	n.spent(7, 100, 3000, 500)
	n.look(0)
	n.spent(7, 50, 4000, 700)
	result := n.look(0)
	want := []timeline.Sample{{UsedMiB: 50, MeteredMs: 4000, WaitedMs: 700, LongestIdleS: 10}, {IdleS: 30, LongestIdleS: 30}}
	if diff := cmp.Diff(want, n.newest(7)); diff != "" || result.Jobs != 1 || result.Slices != 2 || n.asked != 0 {
		t.Errorf("%+v, the driver was asked %d times, %s", result, n.asked, diff)
	}
	// Its user wipes the ledger, or makes it say less.
	n.spent(7, 50, 0, 0)
	n.look(0)
	if newest := n.newest(7); newest[0].MeteredMs != 4000 || newest[0].WaitedMs != 700 {
		t.Errorf("with a ledger that says less: %+v", newest)
	}
	if err := os.Truncate(n.run.Ledger(7), 5); err != nil {
		t.Fatal(err)
	}
	n.look(0)
	if newest := n.newest(7); newest[0].MeteredMs != 4000 {
		t.Errorf("without a ledger: %+v", newest)
	}
}

func TestASliceWithoutAShareIsSampled(t *testing.T) {
	n := newNode(t)
	n.granted(7, 0, gpu)
	n.busy(gpu, 7, 49)
	n.look(0)
	if got := n.sampled(7); got != 50 {
		t.Errorf("after one look it had %d tenths, want 50", got)
	}
	n.look(0) // idle, and no sample counts twice
	n.busy(gpu, 7, 99)
	n.look(0)
	if got := n.sampled(7); got != 149 && got != 150 {
		t.Errorf("after three looks it had %d tenths, want 149", got)
	}
	// The driver does not answer: what was known stays known.
	n.busy(gpu, 7, 99)
	n.fails = errors.New("NVML has not answered")
	if first, second := n.look(0), n.look(0); !strings.Contains(first.Problem, "not answered") || second.Problem != "" {
		t.Errorf("a problem is said %q, and then %q", first.Problem, second.Problem)
	}
	if got := n.sampled(7); got != 149 && got != 150 {
		t.Errorf("without an answer it had %d tenths", got)
	}
}

func TestWhereTheDriverNeverAnswersNothingIsMadeUp(t *testing.T) {
	n := newNode(t)
	n.granted(7, 0, gpu)
	n.fails = discover.ErrNotByProcess
	n.look(0)
	n.look(0)
	if got := n.sampled(7); got != -1 {
		t.Errorf("it had %d tenths", got)
	}
	n.fails, n.unseen = nil, errors.New("the driver names no process in this pid namespace")
	n.look(0)
	if got := n.sampled(7); got != -1 || n.newest(7)[0].LongestIdleS != 0 {
		t.Errorf("where processes are not seen it had %d tenths", got)
	}
	if _, source := usage.Spent(0, n.newest(7)[0]); source != "" {
		t.Errorf("its GPU time is %s", source)
	}
}

// Two jobs, of which one has a share: the driver books all samples on either, and what is metered is taken off.
func TestASliceWithoutAShareBesideOneWithAShare(t *testing.T) {
	n := newNode(t)
	n.granted(7, 0, gpu)
	n.granted(8, 30, gpu)
	n.look(0)
	n.busy(gpu, 7, 99)
	n.spent(8, 1, 3000, 0)
	n.look(0)
	if got := n.sampled(7); got != 69 && got != 70 {
		t.Errorf("it had %d tenths, want 70", got)
	}
	// A third one comes and is metered from its beginning.
	n.granted(9, 20, gpu)
	n.busy(gpu, 7, 99)
	n.spent(8, 1, 5000, 0)
	n.spent(9, 1, 2000, 0)
	n.look(0)
	if got := n.sampled(7); got < 128 || got > 130 {
		t.Errorf("with a third it had %d tenths, want 130", got)
	}
	// And goes, with what nobody has seen.
	n.held = n.held[:2]
	n.busy(gpu, 7, 99)
	n.spent(8, 1, 8000, 0)
	n.look(0)
	if got := n.sampled(7); got < 227 || got > 230 {
		t.Errorf("after one has gone it had %d tenths, want its own samples", got)
	}
	if got := n.newest(8)[0]; got.MeteredMs != 8000 || got.SampledMs != nil {
		t.Errorf("the slice with a share has %+v", got)
	}
}

func TestIdleSlices(t *testing.T) {
	const after = 25 * time.Second
	n := newNode(t)
	n.granted(7, 30, gpu, other) // of which it uses one
	n.granted(8, 30, gpu)
	n.granted(9, 0, gpu)
	spend := func(ms uint64) { n.spent(7, 1, ms, 0) }
	says := func(result Result) (short []string) {
		for _, s := range result.Idle {
			text := string(s.Device) + " of " + string(rune('0'+s.Job))
			if s.New {
				text += ", new"
			}
			if s.Alone {
				text += ", alone"
			}
			short = append(short, text)
		}
		return short
	}
	for i, want := range [][]string{
		nil,
		nil,
		{"GPU-b of 7, new", "GPU-a of 8, new, alone"},
		// The first look at what is sampled does not say what was before it.
		{"GPU-b of 7", "GPU-a of 8, alone", "GPU-a of 9, new, alone"},
	} {
		spend(uint64(i+1) * 100)
		if diff := cmp.Diff(want, says(n.look(after))); diff != "" {
			t.Errorf("look %d: %s", i, diff)
		}
	}
	n.spent(8, 1, 1, 0)
	n.busy(gpu, 9, 1)
	spend(1000)
	if diff := cmp.Diff([]string{"GPU-b of 7"}, says(n.look(after))); diff != "" {
		t.Error(diff)
	}
	n.fails = errors.New("NVML has not answered")
	for range 4 {
		spend(uint64(n.now.Unix()))
		n.look(after)
	}
	if newest := n.newest(9)[0]; newest.IdleS != 0 || newest.LongestIdleS != 30 {
		t.Errorf("what is not known is called idle: %+v", newest)
	}
	if newest := n.newest(8)[0]; newest.IdleS != 40 || newest.LongestIdleS != 40 {
		t.Errorf("the slice with a share: %+v", newest)
	}
}

func TestJobsThatComeAndGoAreNoProblem(t *testing.T) {
	n := newNode(t)
	n.granted(7, 0, gpu)
	n.granted(8, 0, gpu)
	if err := os.RemoveAll(n.run.Job(8)); err != nil {
		t.Fatal(err)
	}
	if result := n.look(0); result.Jobs != 1 || result.Problem != "" {
		t.Errorf("%+v", result)
	}
	// What the last look has left is damaged: the next one goes on from nothing.
	if err := os.WriteFile(n.run.Sample(), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	n.busy(gpu, 7, 49)
	n.look(0)
	if got := n.sampled(7); got != 50 && got != 51 {
		t.Errorf("it had %d tenths, want 50", got)
	}
}

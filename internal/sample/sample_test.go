// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

const gpu, other = device.UUID("GPU-a"), device.UUID("GPU-b")

// node is one on which the test says what programs use.
type node struct {
	t     *testing.T
	run   rundir.Dir
	held  []state.Slice
	now   time.Time
	vgpud bool // runs
}

func newNode(t *testing.T) *node {
	t.Helper()
	return &node{t: t, run: rundir.Dir(t.TempDir()), now: time.Now().Add(-time.Hour).Truncate(time.Second), vgpud: true}
}

// granted gives a job slices as from now.
func (n *node) granted(job uint32, percent int, uuids ...device.UUID) {
	n.t.Helper()
	g := grant.Grant{Version: grant.Version, Job: job, BootID: "boot", Since: n.now, GID: uint32(os.Getgid())}
	for i, uuid := range uuids {
		slice := device.Slice{Device: uuid, Index: device.NVMLIndex(i), MemMiB: 1000, SMPercent: percent}
		g.Slices = append(g.Slices, slice)
		n.held = append(n.held, state.Slice{Job: job, Since: state.MillisOf(n.now), Slice: slice})
	}
	err := errors.Join(os.MkdirAll(n.run.Job(job), 0o755), os.MkdirAll(n.run.Pages(job), 0o755), grant.Write(n.run.Grant(job), g),
		ledger.Create(n.run.Ledger(job), job, len(uuids), uint32(os.Getuid()), uint32(os.Getgid())), ledger.CreateTime(n.run.Time(job), job, len(uuids)))
	if err != nil {
		n.t.Fatal(err)
	}
}

// holds writes what a job's processes have of its first slice by now.
func (n *node) holds(job uint32, usedMiB uint64) {
	n.t.Helper()
	file, err := os.OpenFile(n.run.Ledger(job), os.O_WRONLY, 0)
	if err != nil {
		n.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(binary.LittleEndian.AppendUint64(nil, usedMiB<<20), 64); err != nil {
		n.t.Fatal(err)
	}
}

// counted lets vgpud have counted so much of each of a job's slices by now.
func (n *node) counted(job uint32, unknownMs uint64, flags uint32, busyMs ...uint64) {
	n.t.Helper()
	page, err := ledger.OpenTime(n.run.Time(job), job)
	if err != nil {
		n.t.Fatal(err)
	}
	defer page.Close()
	var devices []ledger.TimeDevice
	for _, ms := range busyMs {
		devices = append(devices, ledger.TimeDevice{BusyNs: ms * 1e6, UnknownNs: unknownMs * 1e6, LookedNs: uint64(ledger.TimeNow() + time.Hour), Flags: flags})
	}
	if err := page.Put(devices); err != nil {
		n.t.Fatal(err)
	}
}

// look lets ten seconds pass and looks.
func (n *node) look(idleAfter time.Duration) Result {
	n.t.Helper()
	n.now = n.now.Add(10 * time.Second)
	result, err := Sampler{Run: n.run, Held: n.held, Now: n.now, IdleAfter: idleAfter, Counting: n.vgpud}.Look()
	if err != nil {
		n.t.Fatal(err)
	}
	return result
}

func (n *node) newest(job uint32) (newest []timeline.Sample) {
	n.t.Helper()
	g, err := grant.Read(n.run.Grant(job))
	if err != nil {
		n.t.Fatal(err)
	}
	history, err := timeline.Read(n.run.Timeline(job), usage.TimelineRun(g))
	if err != nil {
		n.t.Fatal(err)
	}
	for i := range g.Slices {
		last, _ := history.Last(i)
		newest = append(newest, last)
	}
	return newest
}

func TestMemoryIsTheLedgersAndTimeIsVgpuds(t *testing.T) {
	ms := func(ms int64) *int64 { return &ms }
	n := newNode(t)
	n.granted(7, 30, gpu, other)
	n.counted(7, 0, 0, 0, 0)
	n.look(0)
	n.holds(7, 100)
	n.counted(7, 0, 0, 3000, 0)
	n.look(0)
	n.holds(7, 50)
	n.counted(7, 0, ledger.TimeInexact, 4000, 0)
	result := n.look(0)
	want := []timeline.Sample{{UsedMiB: 50, BusyMs: ms(4000)}, {BusyMs: ms(0), IdleS: 20, LongestIdleS: 20}}
	if diff := cmp.Diff(want, n.newest(7)); diff != "" || result.Jobs != 1 || result.Slices != 2 {
		t.Errorf("%+v, %s", result, diff)
	}
	// Its user cuts the ledger: what it held last stays, and its time is none of the ledger's business.
	if err := os.Truncate(n.run.Ledger(7), 5); err != nil {
		t.Fatal(err)
	}
	n.counted(7, 0, 0, 5000, 0)
	n.look(0)
	if newest := n.newest(7)[0]; newest.UsedMiB != 50 || *newest.BusyMs != 5000 {
		t.Errorf("without a ledger: %+v", newest)
	}
}

func TestWhereVgpudHasNotLookedNothingIsMadeUp(t *testing.T) {
	n := newNode(t)
	n.granted(7, 0, gpu)
	for range 4 {
		if result := n.look(25 * time.Second); len(result.Idle) != 0 {
			t.Errorf("idle is %+v", result.Idle)
		}
	}
	if newest := n.newest(7)[0]; newest.BusyMs != nil || newest.LongestIdleS != 0 {
		t.Errorf("%+v", newest)
	}
}

func TestIdleSlices(t *testing.T) {
	const after = 25 * time.Second
	n := newNode(t)
	n.granted(7, 30, gpu, other) // of which it uses one
	n.granted(8, 30, gpu)
	n.granted(9, 0, gpu)
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
		nil, // the first look does not say what was before it
		nil,
		nil,
		{"GPU-b of 7, new", "GPU-a of 8, new, alone"},
		{"GPU-b of 7", "GPU-a of 8, alone"},
		{"GPU-b of 7"},
	} {
		n.counted(7, 0, 0, uint64(i+1)*100, 0)
		n.counted(8, 0, 0, uint64(max(i-4, 0)))
		n.counted(9, 0, 0, uint64(i+1))
		if diff := cmp.Diff(want, says(n.look(after))); diff != "" {
			t.Errorf("look %d: %s", i, diff)
		}
	}
	if newest := n.newest(8)[0]; newest.IdleS != 0 || newest.LongestIdleS != 40 {
		t.Errorf("a slice that has gone on: %+v", newest)
	}
}

func TestASliceIsIdleOnlyWhereVgpudSaysSo(t *testing.T) {
	const after = 25 * time.Second
	for name, c := range map[string]struct {
		vgpud   bool
		unknown uint64 // more at each look
		flags   uint32
		usedMiB uint64 // by the ledger
		idle    bool
	}{
		"it runs, and counts nothing":           {true, 0, 0, 100, true},
		"it does not run":                       {false, 0, 0, 100, false},
		"it was away each time":                 {true, 10, 0, 100, false},
		"a process at work wrote down no group": {true, 0, ledger.TimeUnnamed, 100, false},
		"it sees no process, and there is none": {true, 0, ledger.TimeIdle, 0, true},
		"it sees no process, and there is one":  {true, 0, ledger.TimeIdle, 100, false},
	} {
		n := newNode(t)
		n.vgpud = c.vgpud
		n.granted(7, 0, gpu)
		n.holds(7, c.usedMiB)
		var last Result
		for i := range uint64(5) {
			n.counted(7, i*c.unknown, c.flags, 1000)
			last = n.look(after)
		}
		if (len(last.Idle) == 1) != c.idle {
			t.Errorf("%s: idle are %+v", name, last.Idle)
		}
	}
}

func TestJobsThatComeAndGoAreNoProblem(t *testing.T) {
	n := newNode(t)
	n.granted(7, 0, gpu)
	n.granted(8, 0, gpu)
	if err := os.RemoveAll(n.run.Job(8)); err != nil {
		t.Fatal(err)
	}
	if result := n.look(0); result.Jobs != 1 {
		t.Errorf("%+v", result)
	}
}

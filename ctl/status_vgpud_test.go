// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// vgpud looks for new programs now and then: that it does not know of one says nothing of those that have just begun.
func TestAYoungProcessIsNotSaidToBeUnseen(t *testing.T) {
	const began = 1000 * time.Second
	run, g := rundir.Dir(t.TempDir()), grant.Grant{Job: 7, Slices: []device.Slice{{Device: "GPU-a"}}}
	if err := errors.Join(os.MkdirAll(run.Pages(7), 0o755), ledger.Create(run.Ledger(7), 7, 1, uint32(os.Getuid()), uint32(os.Getgid()))); err != nil {
		t.Fatal(err)
	}
	page, err := os.OpenFile(run.Ledger(7), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	// struct vgpu_ledger_slot, the second one: state, pid, start_ticks; used_bytes of the first device.
	slot := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, 1), 99)
	slot = append(binary.LittleEndian.AppendUint64(slot, uint64(began/ledger.Tick)), make([]byte, 16)...)
	if _, err := page.WriteAt(binary.LittleEndian.AppendUint64(slot, 100<<20), 64+4*128+256*520+320); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		used  uint64
		flags uint32
		age   time.Duration
		want  bool
	}{
		{100 << 20, ledger.TimeIdle, youngFor - 1, false},
		{100 << 20, ledger.TimeIdle, youngFor, true},
		{100 << 20, ledger.TimeIdle, -1, true}, // it is not believed
		{100 << 20, ledger.TimeUnnamed, 0, true},
		{0, ledger.TimeIdle, youngFor, false},
	} {
		counted := ledger.TimeDevice{LookedNs: 1, Flags: tc.flags}
		used := usage.Totals{Devices: []ledger.DeviceUsage{{UsedBytes: tc.used}}, Counted: []ledger.TimeDevice{counted}}
		now := began + tc.age
		if got := countedOf(counted, hasProgram(run, g, 0, used, now), now).Unnamed; got != tc.want {
			t.Errorf("%+v: a process is not seen: %v", tc, got)
		}
	}
}

func TestWhatVgpudDoesWithSlices(t *testing.T) {
	const now = time.Hour
	slice := func(job uint32, priority device.Priority, counted ledger.TimeDevice) sliceStatus {
		return sliceStatus{Job: job, Priority: priority, Counted: countedOf(counted, false, now)}
	}
	fresh, old := uint64(now-100*time.Millisecond), uint64(now-freshLook)
	var out strings.Builder
	writeCounted(&out, false, nodeStatus{Slices: []sliceStatus{
		slice(1, device.PriorityLatency, ledger.TimeDevice{LookedNs: fresh, CreditNs: 123e6, SliceUs: 100000, Percent: 1250}),
		slice(2, device.PriorityBatch, ledger.TimeDevice{LookedNs: old, CreditNs: 5, SliceUs: 50, Percent: 1250, Flags: ledger.TimeUnnamed}),
		slice(3, device.PriorityNormal, ledger.TimeDevice{}), // not looked at
		slice(4, device.PriorityNormal, ledger.TimeDevice{LookedNs: uint64(2 * now), Frozen: 3, Flags: ledger.TimeFrozen | ledger.TimeInexact}),
	}})
	want := []string{
		"JOB GPU PRIORITY TIME SLICE NOW CREDIT FROZEN NOTE",
		"1 0 latency 100.00 ms 12.5% 123 ms 0",
		"2 0 batch 0.05 ms - - 0 a process is not seen: it has no weight and is not counted",
		"4 0 normal driver's 0.0% - 3 its step is frozen; split, not exact",
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

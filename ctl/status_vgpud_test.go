// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
)

func TestWhatVgpudDoesWithSlices(t *testing.T) {
	const now = time.Hour
	slice := func(job uint32, priority device.Priority, counted ledger.TimeDevice) sliceStatus {
		return sliceStatus{Job: job, Priority: priority, Counted: countedOf(counted, 0, now)}
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

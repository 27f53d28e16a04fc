// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// counted lets vgpud have counted a job's only slice by now.
func (n *node) counted(job uint32, busyMs, unknownMs uint64, flags uint32) {
	n.t.Helper()
	n.keptBy(ledger.KeptByVgpud)
	if err := ledger.CreateTime(n.run.Time(job), job, 1); err != nil {
		n.t.Fatal(err)
	}
	page, err := ledger.OpenTime(n.run.Time(job), job)
	if err != nil {
		n.t.Fatal(err)
	}
	defer page.Close()
	if err := page.Put([]ledger.TimeDevice{{BusyNs: busyMs * 1e6, UnknownNs: unknownMs * 1e6, LookedNs: uint64(ledger.TimeNow() + time.Hour), Flags: flags}}); err != nil {
		n.t.Fatal(err)
	}
}

// keptBy says who keeps the shares of the GPU.
func (n *node) keptBy(keeper ledger.Keeper) {
	n.t.Helper()
	if err := errors.Join(os.MkdirAll(n.run.Turns(), 0o755), ledger.WriteBoard(n.run.Board(gpu), ledger.Board{KeptBy: keeper})); err != nil {
		n.t.Fatal(err)
	}
}

func TestASliceThatVgpudCountsIsNotSampled(t *testing.T) {
	n := newNode(t)
	n.granted(7, 0, gpu)
	n.busy(gpu, 7, 99)
	n.counted(7, 2000, 0, 0)
	n.look(0)
	n.spent(7, 100, 0, 0)
	n.counted(7, 5000, 100, ledger.TimeInexact)
	n.look(0)
	sum := int64(5000)
	want := []timeline.Sample{{UsedMiB: 100, CountedMs: &sum, UnknownMs: 100, Inexact: true}}
	if diff := cmp.Diff(want, n.newest(7)); diff != "" || n.asked != 0 {
		t.Errorf("the driver was asked %d times, %s", n.asked, diff)
	}
	if spent, source := usage.Spent(0, n.newest(7)[0]); spent.GPUSeconds != 5 || source != usage.Counted {
		t.Errorf("%+v %q", spent, source)
	}
	// A slice with a cap comes: from now on the library keeps the shares, and counts.
	n.keptBy(ledger.KeptByLibrary)
	n.spent(7, 100, 2000, 0)
	n.says[gpu] = nil
	n.busy(gpu, 7, 49)
	n.look(0)
	if n.asked != 1 || n.sampled(7) != 30 {
		t.Errorf("the driver was asked %d times, and it has %d tenths by samples, want 30", n.asked, n.sampled(7))
	}
	if spent, source := usage.Spent(0, n.newest(7)[0]); spent.GPUSeconds < 9.9 || spent.GPUSeconds > 10.1 || source != usage.Sampled {
		t.Errorf("with the library's: %+v %q", spent, source)
	}
}

// Of two slices without a share vgpud counts one: the other has what the driver's samples leave over.
func TestASampledSliceBesideOneThatVgpudCounts(t *testing.T) {
	n := newNode(t)
	n.granted(7, 0, gpu)
	n.granted(8, 0, gpu)
	n.counted(8, 0, 0, 0)
	n.look(0)
	n.busy(gpu, 7, 99)
	n.counted(8, 3000, 0, 0)
	n.look(0)
	if got := n.sampled(7); got != 69 && got != 70 {
		t.Errorf("it had %d tenths, want 70", got)
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
		n.spent(7, c.usedMiB, 0, 0)
		var last Result
		for i := range uint64(5) {
			n.counted(7, 1000, i*c.unknown, c.flags)
			last = n.look(after)
		}
		if (len(last.Idle) == 1) != c.idle {
			t.Errorf("%s: idle are %+v", name, last.Idle)
		}
	}
}

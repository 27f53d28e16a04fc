// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"io/fs"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
)

// account is what one job's ledger says of its processes: the most of all samples.
type account struct {
	grant grant.Grant
	read  bool // once at least, so that who is missing is missing
	most  map[inside]uint64
}

// inside is a process as its ledger names it, on one of its job's slices.
type inside struct {
	pid   int32
	pidns uint64
	slice int
}

// take reads the ledger once more. A ledger that its user damaged excuses no process. If the node cannot read the ledger, the
// audit reports no process of the job.
func (a *account) take(w Watcher, job uint32) error {
	g, err := grant.Read(w.Run.Grant(job))
	if err != nil { // not there yet, or not any more
		return nil
	}
	a.grant = g
	if g.Whole {
		return nil
	}
	slots, err := ledger.ReadSlots(w.Run.Ledger(job), job, len(g.Slices))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil && !errors.Is(err, ledger.ErrLayout) {
		return err
	}
	a.read = true
	for _, slot := range slots {
		for i, bytes := range slot.Bytes {
			who := inside{slot.PID, slot.PIDNS, i}
			a.most[who] = max(a.most[who], bytes)
		}
	}
	return nil
}

// slice is the place of a GPU among the job's slices.
func (a *account) slice(uuid device.UUID) (int, bool) {
	for i, s := range a.grant.Slices {
		if s.Device == uuid {
			return i, true
		}
	}
	return 0, false
}

// of is what the ledger says that a process holds of a slice, if it knows the process. A namespace that is not known
// is any.
func (a *account) of(p process, slice int) (bytes uint64, is bool) {
	for who, most := range a.most {
		if who.pid == p.inner && who.slice == slice && (who.pidns == p.pidns || who.pidns == 0 || p.pidns == 0) {
			bytes, is = max(bytes, most), true
		}
	}
	return bytes, is
}

// all is what the ledger says that the job holds of a slice, and how many processes hold it.
func (a *account) all(slice int) (bytes, processes uint64) {
	for who, most := range a.most {
		if who.slice == slice && most > 0 {
			bytes += most
			processes++
		}
	}
	return bytes, processes
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"os"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
)

// A ledger is its job's to write: whatever it says, more than the slice is more than the slice.
func TestALyingLedgerHidesNoMemoryBeyondTheSlice(t *testing.T) {
	s := newScene(t)
	s.granted(7, 1000, false, gpu)
	s.process(10, 1000, 7)
	s.process(11, 1000, 7)
	s.slot(7, 0, 10, 0, 1<<62)
	s.slot(7, 1, 11, 0, 1<<62)
	s.looks = []map[device.UUID]discover.Holders{on(held(10, 900*mib), held(11, 612*mib))}
	s.want() // within what the driver may take for two processes
	s.looks = []map[device.UUID]discover.Holders{on(held(10, 900*mib), held(11, 613*mib))}
	s.want("over-limit 0 0/7")
	if found := s.find().Strays[0]; *found.MiB != 1513 || found.AccountedMiB != 1000 || found.UID != 1000 || !found.Ends() {
		t.Errorf("%+v", found)
	}
	// One that cannot be read says nothing of anybody.
	if err := os.Truncate(s.run.Ledger(7), 100); err != nil {
		t.Fatal(err)
	}
	s.want("not-in-ledger 10 0/7", "not-in-ledger 11 0/7", "over-limit 0 0/7")
}

// A node that cannot read a ledger, for want of descriptors or a failing disk, has no job cancelled for that.
func TestALedgerThatTheNodeCannotReadSaysNothing(t *testing.T) {
	s := newScene(t)
	s.granted(7, 1000, false, gpu)
	s.process(10, 1000, 7)
	path := s.run.Ledger(7)
	err := errors.Join(os.Remove(path), os.Symlink(path, path)) // ELOOP, which no user can make of it
	if err != nil {
		t.Fatal(err)
	}
	s.looks = []map[device.UUID]discover.Holders{on(held(10, 300*mib))}
	if found := s.find(); len(found.Strays) != 0 || len(found.Problems) != 1 {
		t.Errorf("%+v", found)
	}
}

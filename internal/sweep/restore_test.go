// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

func (n node) heldBy() (jobs []uint32) {
	n.t.Helper()
	current, err := n.Store.Read()
	n.check(err)
	for _, s := range current.Slices {
		jobs = append(jobs, s.Job)
	}
	slices.Sort(jobs)
	return jobs
}

// Somebody has put an older state file in the place of the node's.
func TestWhatTheStateFileHasLostComesBack(t *testing.T) {
	n := newNode(t)
	n.holds(1, 0, longAgo)
	n.folder(1, 0, "")
	n.told.restarts[1] = 0
	n.holds(8, 0, longAgo)
	n.holds(10, 1, longAgo)
	old, err := os.ReadFile(n.Store.Dir.State())
	n.check(err)
	for job := uint32(2); job <= 5; job++ {
		n.holds(job, 0, longAgo)
		n.folder(job, 0, "")
		n.told.restarts[job] = 0
	}
	delete(n.told.restarts, 3) // over: its folder goes
	n.told.restarts[4] = 1     // the folder is of the run before
	n.folder(13, 0, "")        // the controller does not say
	n.folder(6, 0, "no room")  // got nothing
	n.told.restarts[6] = 0     //
	n.check(os.MkdirAll(n.Store.Dir.Job(7), 0o755))
	n.check(grant.Write(n.Store.Dir.Grant(7), grant.Grant{Job: 7, BootID: "b", Node: "n1", Since: time.Now(), Slices: []device.Slice{{Device: "GPU-a", MemMiB: 10}}}))
	n.told.restarts[7] = 0 // its prolog may be at work
	n.folder(8, 1, "")     // another run has them by now
	n.told.restarts[8] = 1
	n.folder(10, 0, "") // a newer run is in the state, and its prolog was killed before its grant
	n.told.restarts[10] = 1
	n.check(os.WriteFile(n.Store.Dir.State(), old, 0o644))
	if diff := cmp.Diff([]uint32{1, 8, 10}, n.heldBy()); diff != "" {
		t.Fatal(diff)
	}
	if result := n.sweep(); result.Restored != 3 || result.Folders != 3 {
		t.Errorf("%+v", result)
	}
	if diff := cmp.Diff([]uint32{1, 2, 5, 8, 10}, n.heldBy()); diff != "" {
		t.Errorf("held after the sweep (-want +got):\n%s", diff)
	}
	if current, err := n.Store.Read(); err != nil || !slices.ContainsFunc(current.Slices, func(s state.Slice) bool { return s.Job == 8 && s.Restart == 1 }) {
		t.Errorf("the run that is over has not made way: %+v, %v", current.Slices, err)
	}
	if result := n.sweep(); result.Restored != 0 {
		t.Errorf("again: %+v", result)
	}
}

// An epilog that comes while the controller is asked has the last word.
func TestAJobThatEndsMeanwhileGetsNothingBack(t *testing.T) {
	n := newNode(t)
	n.holds(9, 0, time.Now()) // there is a state file, and so nothing is made again from all grants
	for _, job := range []uint32{2, 3} {
		n.folder(job, 0, "")
		n.told.restarts[job] = 0
	}
	n.told.before = func(uint32) {
		if err := os.Remove(n.Store.Dir.Grant(2)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Error(err)
		}
	}
	restored, err := n.restore(context.Background(), func(time.Time) bool { return true })
	n.check(err)
	if diff := cmp.Diff([]uint32{3, 9}, n.heldBy()); diff != "" || restored != 1 {
		t.Errorf("%d slices came back, held (-want +got):\n%s", restored, diff)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// Heirs are those processes of jobs that have the control device open, of which it is known whether they come from one that is alive.
func TestHeirsAreFoundByTheirDescriptors(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	s.must(os.Symlink("/dev/null", filepath.Join(dir, controlDevice))) // what a process of the test has as its input
	mine, others := s.process(7), s.process(8)
	current, err := s.here.Store.Read()
	s.must(err)
	found := func(alive int, ended ...int) (pids []int, other bool) {
		search := heirSearch{deviceDir: dir, auditor: s.here.Auditor}
		search.auditor.WholeNode = true
		for _, h := range search.find(current.Slices, ended, func(pid int) bool { return pid == alive }) {
			if pids = append(pids, h.PID); h.PID == mine.PID {
				other = h.Other
				if h.Process.Process != mine || h.Job != 7 || h.UID != s.uid || !slices.Contains(h.FDs, 0) {
					t.Errorf("%+v", h)
				}
			}
		}
		return pids, other
	}
	if pids, other := found(0, 1<<30); !slices.Contains(pids, mine.PID) || slices.Contains(pids, others.PID) || other {
		t.Errorf("%v, %v; want %d without %d", pids, other, mine.PID, others.PID)
	}
	if _, other := found(os.Getpid(), 1<<30); !other {
		t.Error("it does not come from the one that is alive")
	}
}

// The same ones are not looked for again and again.
func TestHeirsAreLookedForSeldom(t *testing.T) {
	h := heirSearch{}
	h.find(nil, []int{1}, nil)
	at := h.spent.at
	h.find(nil, []int{1}, nil)
	if h.next = at; h.spent.at != at {
		t.Error("it was looked twice")
	}
	h.find(nil, []int{1}, nil)
	if h.spent.at != at {
		t.Error("it was looked again for the same ones")
	}
	h.find(nil, []int{1, 2}, nil)
	if h.spent.at == at {
		t.Error("it was not looked for another one")
	}
}

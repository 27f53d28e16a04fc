// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// heirSearch finds processes that may have descriptors of processes that have ended: their heirs. It reads the processes of all users with slices, so a result
// is used for a while.
type heirSearch struct {
	deviceDir string
	auditor   audit.Auditor

	of    []int // the ended processes of the last search
	found []Heir
	spent looked
	next  time.Time // not before
}

// find searches anew where another process has ended, and now and then.
func (h *heirSearch) find(granted []state.Slice, ended []int, alive func(pid int) bool) []Heir {
	began := time.Now()
	if began.Before(h.next) {
		return h.found
	}
	if slices.Equal(h.of, ended) && began.Before(h.spent.at.Add(heirsEach)) {
		return h.found
	}
	h.of = ended
	h.found = h.look(granted, alive, began.Add(heirsWithin))
	h.next = began.Add(h.spent.rest(began, time.Since(began)))
	return h.found
}

func (h *heirSearch) look(granted []state.Slice, alive func(pid int) bool, until time.Time) (found []Heir) {
	control, err := controlPath(h.deviceDir)
	if err != nil {
		return nil
	}
	uids := map[uint32]uint32{} // of each job
	var users []uint32
	for _, s := range granted {
		uids[s.Job] = s.UID
		users = append(users, s.UID)
	}
	pids := h.auditor.OfUsers(users...)
	// Where the time is over before the end, the next search begins with another process.
	rand.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	descriptors := map[int][]int{}
	for _, pid := range pids {
		if fds := channels.Descriptors(control, pid, until); len(fds) > 0 && len(descriptors) < mostHeirs {
			descriptors[pid] = fds
		}
	}
	have := pids[:0]
	for pid := range descriptors {
		have = append(have, pid)
	}
	slices.Sort(have)
	owners, err := h.auditor.Owners(granted, have)
	if err != nil {
		return nil
	}
	for _, pid := range have {
		start, ok := h.auditor.StartOf(pid)
		if job, known := owners[pid]; known && ok {
			found = append(found, Heir{Process: Process{Process: audit.Process{PID: pid, StartTicks: start}, Job: job, UID: uids[job]},
				FDs: descriptors[pid], Other: h.auditor.ComesFrom(pid, alive)})
		}
	}
	return found
}

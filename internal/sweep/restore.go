// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// missing returns grants without slices in the state file. A prolog writes the state first and the grant last, and a
// release removes the grant first. So an administrator or a fault has changed the state file, or put an older one in
// its place, and the next job would be placed on these jobs' slices. An older file can name an older run of such a job.
func (s Sweeper) missing(held []state.Slice, old func(time.Time) bool) ([]grant.Grant, error) {
	entries, err := os.ReadDir(s.Store.Dir.Jobs())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look for slices that the state file lacks: %w", err)
	}
	holds := make(map[uint32]int) // the newest run, counted from 1
	for _, slice := range held {
		holds[slice.Job] = max(holds[slice.Job], slice.Restart+1)
	}
	var grants []grant.Grant
	for _, entry := range entries {
		job, err := strconv.ParseUint(entry.Name(), 10, 32)
		if err != nil || !entry.IsDir() {
			continue
		}
		g, err := grant.Read(s.Store.Dir.Grant(uint32(job)))
		if err == nil && g.Job == uint32(job) && holds[g.Job] <= g.Restart && g.BootID == s.Store.BootID && g.Refusal == "" && len(g.Slices) > 0 && old(g.Since) {
			grants = append(grants, g)
		}
	}
	return grants, nil
}

// restore puts back into the state file what jobs hold by their grants, if the controller says that they run. It
// returns the number of slices.
func (s Sweeper) restore(ctx context.Context, old func(time.Time) bool) (int, error) {
	current, err := s.Store.Read()
	if errors.Is(err, state.ErrCorrupt) {
		return 0, nil // made again from all grants by who next takes the lock
	}
	if err != nil {
		return 0, err
	}
	lost, err := s.missing(current.Slices, old)
	if err != nil {
		return 0, err
	}
	if len(lost) == 0 {
		return 0, nil
	}
	var runs []state.Run
	for _, g := range lost {
		runs = append(runs, state.Run{Job: g.Job, Restart: g.Restart})
	}
	over, err := state.Over(ctx, runs, s.Controller)
	if err != nil {
		s.Log.Warn("the state file lacks slices of jobs, and the controller does not say whether all of them run", "reason", err)
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	tx, err := s.Store.Begin(waiting)
	if err != nil {
		return 0, err
	}
	defer tx.End()
	if lost, err = s.missing(tx.Slices(), old); err != nil {
		return 0, err
	}
	slices := 0
	for _, g := range lost {
		if over, is := over[state.Run{Job: g.Job, Restart: g.Restart}]; !is || over {
			continue
		}
		tx.Put(g.Job, state.OfGrant(g))
		slices += len(g.Slices)
		s.Log.Error("a running job's slices were not in the state file and are there again", "job", g.Job, "slices", len(g.Slices))
	}
	return slices, tx.Commit()
}

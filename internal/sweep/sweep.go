// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package sweep takes away what jobs left whose prolog or epilog was killed: slices, folders, marks and
// temporary files that belong to nothing any more. If a job may still live, sweep queries the controller. It
// keeps everything that may belong to a living job, and puts back slices that the state file has lost.
package sweep

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/builds"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/release"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// Grace is the age from which on a job's files may be leftovers: before, its prolog may be at work, or its
	// first step not be there yet.
	Grace = time.Minute
	// atOnce bounds how many jobs are ended under one hold of the lock: each of them writes a record.
	atOnce = 16
	// lockWait is how long a sweep queues behind prologs and epilogs.
	lockWait = 30 * time.Second
)

// Sweeper sweeps one node.
type Sweeper struct {
	Config     config.Config
	Node       string
	Store      state.Store
	Controller state.Controller
	Log        hclog.Logger
	Grace      time.Duration
	Most       int           // jobs that the controller is asked about at most; 0: all
	Every      time.Duration // nothing is done if a sweep began less than this ago
}

// Result is what was taken away.
type Result struct {
	Slices, Folders, Marks, Temporaries int
	Restored                            int // slices of running jobs that the state file had lost
	Left                                int // doubts that stay: the controller was not asked, or said nothing
	Recorded                            bool
	Looked                              bool // it was time for a sweep, and no other was at work
}

// Any says that something was taken away or put back.
func (r Result) Any() bool { return r.Restored+r.Slices+r.Folders+r.Marks+r.Temporaries > 0 }

// Sweep does nothing where another sweep is at work.
func (s Sweeper) Sweep(ctx context.Context) (Result, error) {
	var result Result
	held, err := s.begin()
	if err != nil || held == nil {
		return result, err
	}
	defer held.Close()
	result.Looked = true
	old := s.old
	f, err := s.look(old)
	if err != nil {
		return result, err
	}
	result.Marks = removeMarks(f.marks)
	if result.Restored, err = s.restore(ctx, old); err != nil {
		return result, err
	}
	gone, unknown := s.gone(ctx, f.doubts)
	result.Left = unknown
	for len(gone) > 0 && ctx.Err() == nil {
		batch := gone[:min(atOnce, len(gone))]
		if err := s.end(ctx, batch, &result); err != nil {
			return result, err
		}
		gone = gone[len(batch):]
	}
	result.Left += len(gone)
	temporaries, err := s.temporaries(ctx, old)
	result.Temporaries = temporaries
	return result, errors.Join(err, s.builds(ctx))
}

// builds removes what an upgrade left to jobs that are gone by now.
func (s Sweeper) builds(ctx context.Context) error {
	if !builds.Several(s.Store.Dir, s.Config.Library) {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	held, err := trusted.Lock(waiting, s.Store.Dir.Lock())
	if err != nil {
		return err
	}
	defer held.Close()
	removed, err := builds.Sweep(s.Store.Dir, s.Config.Library)
	if removed > 0 {
		s.Log.Info("builds were taken away that no job was started with any more", "builds", removed)
	}
	return err
}

// begin takes the lock, whose time is that of the last sweep. It is nil when there is nothing to do.
func (s Sweeper) begin() (*os.File, error) {
	file, err := trusted.TryLock(s.Config.Run().PassLock())
	if err != nil || file == nil {
		return nil, err
	}
	if st, err := file.Stat(); err == nil && st.Size() > 0 && trusted.Age(st.ModTime()) < s.Every {
		file.Close()
		return nil, nil
	}
	// One byte tells a lock that was just made from one that has seen a sweep.
	if _, err := file.WriteAt([]byte{'\n'}, 0); err != nil {
		file.Close()
		return nil, fmt.Errorf("begin sweep: %w", err)
	}
	return file, nil
}

// old says of a time whether the grace has passed since.
func (s Sweeper) old(when time.Time) bool { return trusted.Age(when) > s.Grace }

func (s Sweeper) look(old func(time.Time) bool) (found, error) {
	live, err := slurm.LiveJobs(s.Config.Slurm.SlurmdSpoolDir, s.Node)
	if err != nil {
		return found{}, err // without it every job would be in doubt
	}
	current, err := s.Store.Read()
	if err != nil {
		return found{}, err
	}
	return look(s.Store.Dir, current.Slices, live, old)
}

// gone asks the controller about the oldest doubts. unknown are those of which it said nothing, or was not asked.
func (s Sweeper) gone(ctx context.Context, doubts []doubt) (gone []doubt, unknown int) {
	var asked []state.Run
	for _, d := range doubts {
		if s.Most == 0 || len(asked) < s.Most {
			asked = append(asked, d.Run)
		}
	}
	over, err := state.Over(ctx, asked, s.Controller)
	if err != nil {
		s.Log.Warn("the controller does not say whether all jobs live, what they have here stays", "reason", err)
	}
	for _, d := range doubts {
		if over[d.Run] {
			gone = append(gone, d)
		}
	}
	return gone, len(doubts) - len(over)
}

// end ends some runs as their epilogs would have. A job of which anything was touched since it was looked
// at has begun anew, and is none of them: its prolog works under the same lock.
func (s Sweeper) end(ctx context.Context, gone []doubt, result *Result) error {
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	tx, err := s.Store.Begin(waiting)
	if err != nil {
		return err
	}
	defer tx.End()
	// Where it cannot be looked again, nothing is known to be the same, and all stays.
	now, lookErr := look(s.Store.Dir, tx.Slices(), nil, func(time.Time) bool { return true })
	same := make(map[doubt]bool)
	for _, d := range now.doubts {
		same[d] = true
	}
	over := make(map[state.Run]bool)
	var jobs []uint32
	for _, d := range gone {
		if !same[d] {
			result.Left++
			continue
		}
		over[d.Run] = true
		if d.folder {
			jobs = append(jobs, d.Job)
			result.Folders++
		}
	}
	released, err := release.Runs(s.Config, tx, jobs, func(run state.Run) bool { return over[run] }, s.Log)
	result.Slices += len(released.Freed)
	result.Recorded = result.Recorded || released.Recorded
	return errors.Join(lookErr, err)
}

func removeMarks(marks []mark) (n int) {
	for _, m := range marks {
		if info, err := os.Lstat(m.path); err != nil || !info.ModTime().Equal(m.when) || !info.Mode().IsRegular() {
			continue
		}
		if os.Remove(m.path) == nil {
			n++
		}
	}
	return n
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package waiting keeps the list of jobs that found no room on this node and wait for it. The list lies in the spool
// directory, because it must outlive a reboot; whoever changes it holds the lock of the state.
package waiting

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// maxFileBytes bounds the list: some thousand jobs.
	maxFileBytes = 8 << 20
	// ComesWithin is how long room is held free for a job that was told of it. One that has not come by then waits for
	// something else as well, and whatever comes first may have the room.
	ComesWithin = 2 * time.Minute
	// MissesAtMost bounds how often room is kept for one that is told and does not come. Its owner may put its start off
	// each time, and would keep the room from others so.
	MissesAtMost = 3
	// Looked is how many jobs are looked at when the room is given out, which takes time under the lock. Those behind them
	// move up.
	Looked = 100
)

// Job is a job that waits for room on this node.
type Job struct {
	Job     uint32        `json:"job"`
	Name    string        `json:"name"`    // to scontrol: 123, 123_4
	Restart int           `json:"restart"` // the run that found no room last
	UID     uint32        `json:"uid"`
	Want    place.Want    `json:"want"`
	Limit   time.Duration `json:"limit"` // how long it may run; 0: not known
	Since   time.Time     `json:"since"` // when it found no room for the first time
	Last    time.Time     `json:"last"`  // … and for the last time
	Reason  string        `json:"reason"`
	Told    time.Time     `json:"told,omitzero"`    // when it was told that there is room
	Missed  int           `json:"missed,omitempty"` // how often it was told and did not come
	Idle    bool          `json:"idle,omitempty"`   // somebody holds it
	// Excluded is the host list where it must not run, as it was when it found no room.
	Excluded string `json:"excluded,omitempty"`
}

// Waiter is the job as it stands in the queue for GPUs.
func (j Job) Waiter(now time.Time) place.Waiter {
	w := place.Waiter{Job: j.Job, Want: j.Want}
	w.Want.Ends = 0
	if j.Limit > 0 {
		w.Want.Ends = now.Add(j.Limit).Unix()
	}
	return w
}

// Claims says that the job is before those that have waited less. One that its user or an administrator holds (Idle) is
// not, nor one that was told of room and did not come, or did so again and again: that one has to come by itself.
func (j Job) Claims(now time.Time) bool {
	return !j.Idle && j.Missed < MissesAtMost && (j.Told.IsZero() || now.Sub(j.Told) < ComesWithin)
}

// Jobs are those that wait, the longest waiting first.
type Jobs []Job

// Read returns the list. None is no error, and one that cannot be believed is empty: its jobs come back by themselves.
func Read(spool rundir.Spool) (Jobs, error) {
	data, err := trusted.ReadFile(spool.Waiting(), maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read who waits: %w", err)
	}
	var jobs Jobs
	if err := json.Unmarshal(data, &jobs); err != nil {
		return nil, fmt.Errorf("read who waits: %s: %w", spool.Waiting(), err)
	}
	jobs.sort()
	return jobs, nil
}

// Write replaces the list.
func Write(spool rundir.Spool, jobs Jobs) error {
	if len(jobs) == 0 {
		err := os.Remove(spool.Waiting())
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("write who waits: %w", err)
	}
	data, err := json.MarshalIndent(jobs, "", " ")
	if err != nil {
		return fmt.Errorf("write who waits: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(spool.Waiting()), 0o755); err != nil {
		return fmt.Errorf("write who waits: %w", err)
	}
	if err := trusted.WriteFile(spool.Waiting(), append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write who waits: %w", err)
	}
	return nil
}

func (jobs Jobs) sort() {
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Job, b.Job)) })
}

// Put adds a job, or a later run of one, which keeps its place.
func (jobs Jobs) Put(job Job) Jobs {
	if before, ok := jobs.Find(job.Job); ok && before.Since.Before(job.Since) {
		job.Since = before.Since
	}
	jobs = append(jobs.Without(job.Job), job)
	jobs.sort()
	return jobs
}

// Find finds a job by its number.
func (jobs Jobs) Find(job uint32) (Job, bool) {
	i := slices.IndexFunc(jobs, func(j Job) bool { return j.Job == job })
	if i < 0 {
		return Job{}, false
	}
	return jobs[i], true
}

// Without returns the list without some jobs.
func (jobs Jobs) Without(gone ...uint32) Jobs {
	var left Jobs
	for _, j := range jobs {
		if !slices.Contains(gone, j.Job) {
			left = append(left, j)
		}
	}
	return left
}

// Before are those that go before a job: all that have waited longer, which is all if it has not waited yet.
func (jobs Jobs) Before(job uint32, now time.Time) (waiters []place.Waiter) {
	for _, j := range jobs {
		if j.Job == job || len(waiters) == Looked {
			break
		}
		if j.Claims(now) {
			waiters = append(waiters, j.Waiter(now))
		}
	}
	return waiters
}

// Numbers are those of the jobs.
func (jobs Jobs) Numbers() (numbers []uint32) {
	for _, j := range jobs {
		numbers = append(numbers, j.Job)
	}
	return numbers
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package queue is how jobs wait for a node where Slurm counts slices by node, and so sends it jobs that fit no GPU: the list of those that found
// no room, the pick of a GPU in a job's turn (Own), and the start of waiting jobs when something becomes free (Waker). It is for Slurm before 23.11.5, and stays
// as it is: where Slurm picks the GPUs nothing of it runs (decision 044). The list lies in the spool directory, because it must outlive a reboot; a program
// changes it only under the lock of the state.
package queue

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
	// MostOfUser and Most bound the list, mostBytes one entry of it: a user with thousands of jobs that find no room fills neither
	// the file nor the front of the queue (LookedOfUser). Slurm starts jobs that are not listed again after minutes.
	MostOfUser = 256
	Most       = 512
	mostBytes  = 8 << 10
	// maxFileBytes has room for them.
	maxFileBytes = 2 * Most * mostBytes
	// MostAway and MostAwayOfUser bound the jobs that are away. AwayUnasked is the time between two queries about such a job.
	MostAway       = 100
	MostAwayOfUser = 25
	AwayUnasked    = time.Minute
	// ComesWithin is how long room is held free for a job that may start. A job that has not come by then waits for something
	// else as well, and the next job that comes may have the room.
	ComesWithin = 2 * time.Minute
	// LongestWait is how far a prolog puts off a job's start at most.
	LongestWait = 4 * time.Hour
	// MissesAtMost bounds how often room is kept for a job that may start and does not come. Its owner may put its start off
	// each time, and would keep the room from others so.
	MissesAtMost = 3
	// Looked is how many jobs with a claim are looked at when the room is given out, and how many without, which takes time
	// under the lock; and LookedOfUser how many of one user. Those behind them move up.
	Looked       = 100
	LookedOfUser = 25
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
	Idle    bool          `json:"idle,omitempty"`   // it could not come if there was room: somebody holds it, or has put it off
	// Excluded is the host list where it must not run, as it was when it found no room.
	Excluded string `json:"excluded,omitempty"`
	// Barred says that this node was added to that. It lets the job in again when there is room, which nobody else does.
	Barred bool `json:"barred,omitempty"`
	// Away is when it was last seen to run on other nodes; zero: it waits. It may be put back there, and then waits here again.
	Away time.Time `json:"away,omitzero"`
}

// IsAway says that the job does not wait, but runs elsewhere, and is not forgotten.
func (j Job) IsAway() bool { return !j.Away.IsZero() }

// Waiter is the job as it stands in the queue for GPUs.
func (j Job) Waiter(now time.Time) place.Waiter {
	w := place.Waiter{Job: j.Job, Want: j.Want}
	w.Want.Ends = 0
	if j.Limit > 0 {
		w.Want.Ends = now.Add(j.Limit).Unix()
	}
	return w
}

// Claims says whether the job goes before jobs that have waited less. A job that is held or postponed (Idle) has no claim. Neither
// has a job that could start and did not come, now or MissesAtMost times before: it may still come by itself.
func (j Job) Claims(now time.Time) bool {
	return !j.Idle && !j.IsAway() && j.Missed < MissesAtMost && (j.Told.IsZero() || trusted.AgeAt(now, j.Told) < ComesWithin)
}

// Jobs are those that wait, the longest waiting first, and those that are away.
type Jobs []Job

// Waiting are those that are not away.
func (jobs Jobs) Waiting() Jobs { return slices.DeleteFunc(slices.Clone(jobs), Job.IsAway) }

func (jobs Jobs) away() Jobs {
	return slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return !j.IsAway() })
}

// Asked returns the jobs to query the controller about: all that wait, and of the jobs that are away those of the oldest query,
// so many that the total is at most cheap. If cheap or more jobs wait, it returns all jobs: one query lists them anyway.
func (jobs Jobs) Asked(now time.Time, cheap int) []uint32 {
	asked := jobs.Waiting()
	if len(asked) >= cheap {
		return jobs.Numbers()
	}
	away := slices.DeleteFunc(jobs.away(), func(j Job) bool { return trusted.AgeAt(now, j.Away) < AwayUnasked })
	slices.SortStableFunc(away, func(a, b Job) int { return a.Away.Compare(b.Away) })
	return append(asked, away[:min(len(away), cheap-len(asked))]...).Numbers()
}

// RoomAway says whether one more job of a user may be remembered that is away.
func (jobs Jobs) RoomAway(uid uint32) bool {
	all, own := 0, 0
	for _, j := range jobs {
		switch {
		case !j.IsAway():
		case j.UID == uid:
			own++
			fallthrough
		default:
			all++
		}
	}
	return all < MostAway && own < MostAwayOfUser
}

// Read returns the list. No list is no error, and a list that cannot be trusted is empty: its jobs come back by themselves.
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
	jobs.Sort()
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

// Sort puts the longest waiting first.
func (jobs Jobs) Sort() {
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Job, b.Job)) })
}

// Put adds a job, or a later run of one, which keeps its place. Where there are too many, those that have waited least are left out:
// of its user, and in all of the user who has most.
func (jobs Jobs) Put(job Job) Jobs {
	if before, ok := jobs.Find(job.Job); ok && before.Since.Before(job.Since) {
		job.Since = before.Since
	}
	jobs = jobs.Without(job.Job)
	if data, err := json.MarshalIndent(job, "", " "); err != nil || len(data) > mostBytes {
		return jobs
	}
	away := jobs.away()
	jobs = append(jobs.Waiting(), job)
	jobs.Sort()
	of := make(map[uint32]int)
	jobs = slices.DeleteFunc(jobs, func(j Job) bool { of[j.UID]++; return of[j.UID] > MostOfUser })
	for len(jobs) > Most {
		greediest := jobs.greediest()
		for i := len(jobs) - 1; i >= 0; i-- {
			if jobs[i].UID == greediest {
				jobs = slices.Delete(jobs, i, i+1)
				break
			}
		}
	}
	jobs = append(jobs, away...)
	jobs.Sort()
	return jobs
}

// greediest is the user with most jobs, of several the one whose first has waited longest.
func (jobs Jobs) greediest() (uid uint32) {
	of := make(map[uint32]int)
	for _, j := range jobs {
		of[j.UID]++
	}
	most := 0
	for _, j := range jobs {
		if of[j.UID] > most {
			uid, most = j.UID, of[j.UID]
		}
	}
	return uid
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

// Look is a job that is looked at when room is given out.
type Look struct {
	At     int // in the list
	Claims bool
}

// Looks are the jobs that are looked at, in order. Those that claim nothing take no place from those that do, and of one user's
// jobs none claims any more when too many have not come: he could have room kept by one after the other.
func (jobs Jobs) Looks(now time.Time) (looks []Look) {
	careless := jobs.Careless(now)
	type group struct {
		claims bool
		user   uint32
	}
	all, of := make(map[bool]int), make(map[group]int)
	for i, j := range jobs {
		if j.IsAway() {
			continue
		}
		claims := j.Claims(now) && !careless[j.UID]
		if all[claims] == Looked || of[group{claims, j.UID}] == LookedOfUser {
			continue
		}
		all[claims]++
		of[group{claims, j.UID}]++
		looks = append(looks, Look{i, claims})
	}
	return looks
}

// Careless are the users whose jobs could start and did not come more than 2 * MissesAtMost times in all.
func (jobs Jobs) Careless(now time.Time) map[uint32]bool {
	missed, careless := make(map[uint32]int), make(map[uint32]bool)
	for _, j := range jobs {
		missed[j.UID] += j.Missed
		if !j.Told.IsZero() && trusted.AgeAt(now, j.Told) >= ComesWithin {
			missed[j.UID]++
		}
		careless[j.UID] = missed[j.UID] > 2*MissesAtMost
	}
	return careless
}

// Inherit adds the misses of jobs that are gone to the job of the same user that has waited least. Without this, a user who cancels
// each such job just before ComesWithin is over would never count as careless.
func (jobs Jobs) Inherit(gone Jobs) {
	for _, g := range gone {
		if !g.Told.IsZero() {
			g.Missed++
		}
		for i := len(jobs) - 1; i >= 0; i-- {
			if jobs[i].UID == g.UID && !jobs[i].IsAway() {
				jobs[i].Missed += g.Missed
				break
			}
		}
	}
}

// Before are those that go before a job: all that have waited longer, which is all if it has not waited yet.
func (jobs Jobs) Before(job uint32, now time.Time) (waiters []place.Waiter) {
	own := slices.IndexFunc(jobs, func(j Job) bool { return j.Job == job })
	for _, look := range jobs.Looks(now) {
		if own >= 0 && look.At >= own {
			break
		}
		if look.Claims {
			waiters = append(waiters, jobs[look.At].Waiter(now))
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

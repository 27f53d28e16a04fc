// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package report tells Slurm's accounting database what jobs used: it carries the usage records of
// the spool into the rows of their jobs.
package report

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// Outcomes of a report, as they stand in the history.
const (
	OutcomeWritten = "written to the accounting database"
	// OutcomeRequeued is about a prolog that came when the job's next run was under way: which row was its own run's
	// it cannot know.
	OutcomeRequeued = "not written: the job had been requeued before it began"
)

// Reporter carries usage records from the spool into the accounting database.
type Reporter struct {
	Spool      rundir.Spool
	Accounting Accounting
	Field      string        // where usage goes: accounting_field of config.yaml
	RetryFor   time.Duration // a record older than this is given up
	Log        hclog.Logger
	// Retry is the pause after a first unsuccessful try; it doubles up to longestPause times of it.
	Retry time.Duration
	// Settle is how long a job on several nodes is given to be overwritten by another node's reporter
	// before its part is looked for again.
	Settle time.Duration
	// Spread is the most that is waited before the first look: the nodes of a job end it together, and the database
	// is one. What comes meanwhile is reported with the rest.
	Spread time.Duration
	// After is how long after its end a job's AdminComment is left to others; DefaultAfter says who they are.
	After time.Duration
	// Known asks slurmctld whether it knows a job, from BackfillAfter after the job's end on.
	Known         func(ctx context.Context, job uint32) (bool, error)
	BackfillAfter time.Duration
}

// DefaultRetry, DefaultSettle and DefaultSpread suit a database that was away for seconds, and one that was for hours.
const (
	DefaultRetry  = time.Second
	DefaultSettle = 2 * time.Second
	DefaultSpread = 2 * time.Second
)

// longestPause is how often Retry a pause is at most, and the time between two looks at what slurmctld may have written over.
const longestPause = 64

// atOnce is how many records are read and written together.
const atOnce = 100

// waiting is a record's next try.
type waiting struct {
	next  time.Time
	pause time.Duration
}

// Flush works the spool off: until it is empty, or ctx ends. Another reporter at work: it returns
// at once, since that one takes new records too. Errors are about the spool itself only; the
// history has the fate of each record.
func (r *Reporter) Flush(ctx context.Context) error {
	for {
		unlock, err := usage.Lock(r.Spool)
		if err != nil || unlock == nil {
			return err
		}
		err = r.work(ctx)
		unlock()
		if err != nil || ctx.Err() != nil {
			return err
		}
		// A record that came after the last look and whose reporter found the lock taken is ours.
		records, bad, err := usage.List(r.Spool)
		if err != nil || len(records)+len(bad) == 0 {
			return err
		}
	}
}

func (r *Reporter) work(ctx context.Context) error {
	usage.RemoveTemporaries(r.Spool)
	if r.Spread > 0 && !sleepFor(ctx, rand.N(r.Spread)) {
		return nil
	}
	later := make(map[string]*waiting)
	var more bool
	var looked time.Time
	for {
		if more || time.Since(looked) >= longestPause*r.Retry {
			var err error
			if more, err = r.backfill(ctx); err != nil {
				return err
			}
			looked = time.Now()
		}
		records, bad, err := usage.List(r.Spool)
		if err != nil {
			return err
		}
		for _, name := range bad {
			if err := r.setAside(name); err != nil {
				return err
			}
		}
		if len(records) == 0 && !more {
			return nil
		}
		if err := r.round(ctx, records, later); err != nil {
			return err
		}
		if !r.pause(ctx, later) {
			return nil
		}
	}
}

// round tries every record whose turn it is. A database that does not answer ends the round: the
// others would only wait for the same silence.
func (r *Reporter) round(ctx context.Context, records []usage.Record, later map[string]*waiting) error {
	var due []usage.Record
	for _, rec := range records {
		if wait := later[rec.FileName()]; wait == nil || !time.Now().Before(wait.next) {
			due = append(due, rec)
		}
	}
	for batch := range slices.Chunk(due, atOnce) {
		if ctx.Err() != nil {
			return nil
		}
		results := r.report(ctx, batch)
		for i, rec := range batch {
			if err := r.conclude(rec, results[i], later); err != nil {
				return err
			}
		}
		if err := usage.Trim(r.Spool); err != nil {
			return err
		}
		if i := slices.IndexFunc(results, func(res result) bool { return errors.Is(res.err, ErrDatabase) }); i >= 0 {
			next := later[batch[i].FileName()]
			for _, rec := range records {
				postpone(later, rec, next, r.Retry)
			}
			return nil
		}
	}
	return nil
}

func postpone(later map[string]*waiting, rec usage.Record, until *waiting, pause time.Duration) {
	name := rec.FileName()
	if later[name] == nil {
		later[name] = &waiting{pause: pause}
	}
	if until != nil && later[name].next.Before(until.next) {
		later[name].next = until.next
	}
}

// conclude finishes a record, gives it up, or lets it wait.
func (r *Reporter) conclude(rec usage.Record, res result, later map[string]*waiting) error {
	name := rec.FileName()
	if res.outcome != "" {
		delete(later, name)
		return r.finish(rec, res.outcome)
	}
	begun := rec.End
	if rec.PutBack.After(begun) {
		begun = rec.PutBack
	}
	if time.Since(begun) > r.RetryFor && !errors.Is(res.err, errSettling) {
		r.Log.Error("usage record given up", "job", rec.Job, "restart", rec.Restart, "reason", res.err)
		delete(later, name)
		return r.finish(rec, "given up: "+res.err.Error())
	}
	wait := later[name]
	if wait == nil {
		wait = &waiting{pause: r.Retry}
		later[name] = wait
	} else if !errors.Is(res.err, errSettling) {
		wait.pause = min(2*wait.pause, longestPause*r.Retry)
	}
	pause := wait.pause
	if errors.Is(res.err, errSettling) {
		pause = 2 * r.Settle
	}
	pause = pause/2 + rand.N(max(pause, 1)) // hundreds of nodes wait for one database
	wait.next = time.Now().Add(pause)
	r.Log.Info("usage record waits", "job", rec.Job, "restart", rec.Restart, "retry_in", pause, "reason", res.err)
	return nil
}

// pause waits for the next record's turn, but looks for new ones now and then.
func (r *Reporter) pause(ctx context.Context, later map[string]*waiting) bool {
	sleep := 5 * time.Second
	for _, wait := range later {
		sleep = min(sleep, time.Until(wait.next))
	}
	if len(later) == 0 {
		return ctx.Err() == nil
	}
	return sleepFor(ctx, sleep)
}

func sleepFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// finish moves a record into the history.
func (r *Reporter) finish(rec usage.Record, outcome string) error {
	if rec.Backfill && outcome == OutcomeWritten {
		if err := usage.PutBackfill(r.Spool, rec); err != nil {
			return err
		}
	}
	rec.Outcome = outcome
	if err := usage.Keep(r.Spool, rec); err != nil {
		return err
	}
	r.Log.Info("usage record reported", "job", rec.Job, "restart", rec.Restart, "outcome", outcome)
	return nil
}

func (r *Reporter) setAside(name string) error {
	to, err := usage.SetAside(r.Spool, name)
	if err != nil {
		return err
	}
	r.Log.Error("file in the usage spool is no record", "moved_to", to)
	return usage.Trim(r.Spool)
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// changes is how often a text is merged anew because another node's reporter was quicker, before it waits.
const changes = 5

// lateRow is how long after a run's end its row is waited for although a later run's is there: after slurmdbd was
// away, slurmctld tells it of the runs under way before it tells of those that have ended.
const lateRow = time.Hour

var (
	errNotEnded = errors.New("the job has not ended in the accounting database")
	errSettling = errors.New("written; other nodes of the job may be writing as well")
)

// result is what became of a record: an outcome, or why it waits.
type result struct {
	outcome string
	err     error
}

// report writes the parts of some records, each into the row of its own run.
func (r *Reporter) report(ctx context.Context, records []usage.Record) []result {
	results := make([]result, len(records))
	var jobs []uint32
	for _, rec := range records {
		if !slices.Contains(jobs, rec.Job) {
			jobs = append(jobs, rec.Job)
		}
	}
	rows, err := r.Accounting.Rows(ctx, jobs)
	if err != nil {
		for i := range results {
			results[i].err = err
		}
		return results
	}
	var updates []Update
	var of []int // which record an update is of
	for i, rec := range records {
		var update Update
		if update, results[i] = r.decide(rows, rec); results[i] == (result{}) {
			updates, of = append(updates, update), append(of, i)
		}
	}
	for try := 0; len(updates) > 0; try++ {
		errs := r.Accounting.Write(ctx, updates)
		var again []Update
		var ofAgain []int
		for u, update := range updates {
			i := of[u]
			results[i] = written(update, errs[u])
			var changed *ChangedError
			if try+1 < changes && errors.As(errs[u], &changed) {
				update.Row.set(update.Field, changed.Is)
				if update, results[i] = r.merge(update, records[i]); results[i] == (result{}) {
					again, ofAgain = append(again, update), append(ofAgain, i)
				}
			}
		}
		updates, of = again, ofAgain
	}
	return results
}

// decide finds a record's row and what is to be written there. A result that is not empty means: nothing.
func (r *Reporter) decide(rows []Row, rec usage.Record) (Update, result) {
	row, isNewest, err := rowOf(rows, rec)
	switch {
	case rec.Requeued && rec.Submitted.IsZero():
		return Update{}, result{outcome: OutcomeRequeued}
	case errors.Is(err, errNever) && trusted.Age(rec.End) > lateRow:
		return Update{}, result{outcome: "not written: " + err.Error()}
	case err != nil:
		return Update{}, result{err: err}
	case !row.Ended:
		return Update{}, result{err: fmt.Errorf("%w: %s", errNotEnded, row.State)}
	}
	return r.merge(Update{Row: row, Newest: isNewest}, rec)
}

func (r *Reporter) merge(update Update, rec usage.Record) (Update, result) {
	var err error
	if update.Field, err = r.fieldFor(update.Row); err != nil {
		return update, result{outcome: "not written: " + err.Error()}
	}
	stands := update.Row.text(update.Field)
	if Stands(stands, rec) {
		return update, result{outcome: OutcomeWritten}
	}
	if update.Field == FieldAdminComment && trusted.Age(update.Row.End) < r.After {
		return update, result{err: errEpilogSlurmctld}
	}
	if update.Field == FieldExtra {
		update.Text, err = mergeExtra(stands, update.Row, rec)
	} else {
		update.Text, err = Merge(stands, rec)
	}
	switch {
	case errors.Is(err, ErrCommentFull) || errors.Is(err, ErrCommentVersion):
		return update, result{outcome: "not written: " + err.Error()}
	case err != nil:
		return update, result{err: err}
	}
	return update, result{}
}

// written is what an update came to. A job of several nodes is looked at again: whoever has no library to
// write with does not see that another node has written meanwhile.
func written(update Update, err error) result {
	switch {
	case errors.Is(err, ErrOlderRun):
		return result{outcome: "not written: " + ErrOlderRun.Error()}
	case err != nil:
		return result{err: err}
	case update.Row.Nodes > 1:
		return result{err: errSettling}
	}
	return result{outcome: OutcomeWritten}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What slurmctld writes over a report is made good when it does not know the job any longer, and not before.
func TestAReportIsWrittenAgainOverWhatSlurmctldWrote(t *testing.T) {
	db := &database{rows: map[uint32]Row{7: ended(7)}}
	r := reporter(t, db)
	r.Retry = time.Second // one look in a flush
	known, asked := error(nil), 0
	knows := true
	r.Known = func(_ context.Context, job uint32) (bool, error) {
		if asked++; job != 7 {
			t.Errorf("it is asked for job %d", job)
		}
		return knows, known
	}
	rec := sample(7)
	rec.Backfill = true
	mustWrite(t, r.Spool, rec)
	flush(t, r)
	written := db.rows[7].AdminComment
	if !Stands(written, rec) || asked != 0 {
		t.Fatalf("%q, asked %d times", written, asked)
	}
	overwritten := ended(7)
	db.rows[7] = overwritten
	for _, why := range []error{nil, errors.New("slurmctld does not answer")} {
		known = why
		if flush(t, r); db.rows[7].AdminComment != "" {
			t.Errorf("%v: written while slurmctld may write again", why)
		}
	}
	r.BackfillAfter = time.Hour
	known, knows, asked = nil, false, 0
	if flush(t, r); db.rows[7].AdminComment != "" || asked != 0 {
		t.Error("it is asked before its time")
	}
	r.BackfillAfter = 0
	if flush(t, r); db.rows[7].AdminComment != written || asked != 1 {
		t.Errorf("%q, asked %d times", db.rows[7].AdminComment, asked)
	}
	// And that was it.
	db.rows[7] = overwritten
	if flush(t, r); db.rows[7].AdminComment != "" || asked != 1 {
		t.Errorf("%q, asked %d times", db.rows[7].AdminComment, asked)
	}
	if left, err := os.ReadDir(r.Spool.Backfill()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// wantLeft checks how many reports are to be looked at again.
func wantLeft(t *testing.T, r *Reporter, want int) {
	t.Helper()
	if left, err := os.ReadDir(r.Spool.Backfill()); err != nil || len(left) != want {
		t.Errorf("%d reports are to be looked at again, want %d: %v", len(left), want, err)
	}
}

// reportsOf are written, once, and may be written over.
func reportsOf(t *testing.T, r *Reporter, db *database, jobs uint32) {
	t.Helper()
	for job := range jobs {
		rec := sample(job + 1)
		rec.Backfill, db.rows[job+1] = true, ended(job+1)
		mustWrite(t, r.Spool, rec)
	}
	flush(t, r)
	wantLeft(t, r, int(jobs))
	for job := range jobs {
		db.rows[job+1] = ended(job + 1)
	}
}

// Of many jobs that slurmctld knows it is asked for a few, those are not in the way of others, and those that it never forgets
// are given up.
func TestJobsThatSlurmctldKeeps(t *testing.T) {
	db := &database{rows: map[uint32]Row{}}
	r := reporter(t, db)
	r.BackfillAfter = time.Hour
	reportsOf(t, r, db, 20)
	r.BackfillAfter = 0
	r.Retry = time.Second // not twice in a flush
	asked := make(map[uint32]int)
	knows := func(job uint32) bool { return job <= 4 }
	r.Known = func(_ context.Context, job uint32) (bool, error) { asked[job]++; return knows(job), nil }
	for i := range uint32(4) {
		then := time.Now().Add(-time.Hour)
		if err := os.Chtimes(filepath.Join(r.Spool.Backfill(), sample(i+1).FileName()), then, then); err != nil {
			t.Fatal(err)
		}
	}
	if flush(t, r); len(asked) != knownAtMost {
		t.Errorf("it is asked for %v", asked)
	}
	wantLeft(t, r, 20)
	flush(t, r) // the fourth, and all others
	wantLeft(t, r, 4)
	for job, row := range db.rows {
		if wrote := row.AdminComment != ""; wrote == knows(job) {
			t.Errorf("job %d has %q", job, row.AdminComment)
		}
	}
	clear(asked)
	r.RetryFor = 0
	if flush(t, r); len(asked) != 0 {
		t.Errorf("it is asked for %v", asked)
	}
	wantLeft(t, r, 0)
}

// More than are taken up at once follow in the same flush.
func TestManyReportsThatWereWrittenOver(t *testing.T) {
	db := &database{rows: map[uint32]Row{}}
	r := reporter(t, db)
	const jobs = 2*backfillAtOnce + 10
	reportsOf(t, r, db, jobs)
	r.Retry = time.Second
	r.Known = func(context.Context, uint32) (bool, error) { return false, nil }
	flush(t, r)
	wantLeft(t, r, 0)
	for job, row := range db.rows {
		if row.AdminComment == "" {
			t.Errorf("job %d has no report", job)
		}
	}
}

// A report that comes back late is tried as long as a new one.
func TestAnOldReportThatWasWrittenOver(t *testing.T) {
	db := &database{rows: map[uint32]Row{}}
	r := reporter(t, db)
	reportsOf(t, r, db, 1)
	r.RetryFor = time.Minute // it ended long before
	r.Known = func(context.Context, uint32) (bool, error) { return false, nil }
	db.faults = []error{ErrDatabase, ErrDatabase, ErrDatabase}
	flush(t, r)
	wantLeft(t, r, 0)
	if len(db.faults) != 0 || db.rows[1].AdminComment == "" || outcome(t, r, 1) != OutcomeWritten {
		t.Errorf("%q, %s", db.rows[1].AdminComment, outcome(t, r, 1))
	}
}

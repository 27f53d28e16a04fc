// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"
)

// What slurmctld writes over a report is made good when it does not know the job any longer, and not before.
func TestAReportIsWrittenAgainOverWhatSlurmctldWrote(t *testing.T) {
	db := &database{rows: map[uint32]Row{7: ended(7)}}
	r := reporter(t, db)
	known, asked := error(nil), 0
	knows := true
	r.Known = func(_ context.Context, job uint32) (bool, error) {
		if asked++; job != 7 {
			t.Errorf("it is asked for job %d", job)
		}
		return knows, known
	}
	rec := sample(7)
	rec.Again = true
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
	r.Again = time.Hour
	known, knows, asked = nil, false, 0
	if flush(t, r); db.rows[7].AdminComment != "" || asked != 0 {
		t.Error("it is asked before its time")
	}
	r.Again = 0
	if flush(t, r); db.rows[7].AdminComment != written || asked != 1 {
		t.Errorf("%q, asked %d times", db.rows[7].AdminComment, asked)
	}
	// And that was it.
	db.rows[7] = overwritten
	if flush(t, r); db.rows[7].AdminComment != "" || asked != 1 {
		t.Errorf("%q, asked %d times", db.rows[7].AdminComment, asked)
	}
	if left, err := os.ReadDir(r.Spool.Again()); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// Of many jobs that slurmctld knows it is asked for a few, and those that it never forgets are given up.
func TestJobsThatSlurmctldKeeps(t *testing.T) {
	db := &database{rows: map[uint32]Row{}}
	r := reporter(t, db)
	asked := 0
	r.Known = func(context.Context, uint32) (bool, error) { asked++; return true, nil }
	const jobs = 20
	for job := range uint32(jobs) {
		rec := sample(job + 1)
		rec.Again, db.rows[job+1] = true, ended(job+1)
		mustWrite(t, r.Spool, rec)
	}
	flush(t, r)
	if flush(t, r); asked != knownAtMost {
		t.Errorf("it is asked %d times", asked)
	}
	if left, err := os.ReadDir(r.Spool.Again()); err != nil || len(left) != jobs {
		t.Errorf("%d of %d wait, %v", len(left), jobs, err)
	}
	r.RetryFor = 0
	if flush(t, r); asked != knownAtMost {
		t.Errorf("it is asked %d times", asked)
	}
	if left, err := os.ReadDir(r.Spool.Again()); err != nil || len(left) > 0 {
		t.Errorf("%d wait, %v", len(left), err)
	}
}

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
	r.Again = time.Since(rec.End) + time.Hour
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

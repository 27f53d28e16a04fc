// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// runs are the rows of a job that was requeued twice, a minute after each of its runs of an hour had ended.
func runs() (rows []Row, records []usage.Record) {
	for i := range 3 {
		begin := noon.Add(time.Duration(i) * (time.Hour + time.Minute))
		row := ended(7)
		row.Submit, row.Start, row.End = begin.Add(-time.Minute), begin, begin.Add(time.Hour)
		row.State, row.NodeList = "REQUEUED", "n1"
		if i == 2 {
			row.State = "COMPLETED"
		}
		rows = append(rows, row)
		rec := sample(7)
		rec.Restart, rec.Start, rec.End = i, begin.Add(time.Second), begin.Add(time.Hour+time.Second)
		records = append(records, rec)
	}
	return rows, records
}

// A run whose job was resized goes on in other rows: the report stands in the last of them, and no later run's is taken for it.
func TestAResizedRunIsReportedInItsLastRow(t *testing.T) {
	rows, records := runs()
	first, rec := rows[0], records[0]
	first.State, first.End = "RESIZING", first.Start.Add(time.Minute)
	second := first
	second.Submit, second.Start, second.End = first.End, first.End, first.End.Add(time.Minute)
	third := second
	third.Submit, third.Start, third.End, third.State = second.End, second.End, rows[0].End, "COMPLETED"
	rec.Submitted = first.Submit
	for n, want := range map[int]Row{1: first, 2: second, 3: third} {
		if row, _, err := rowOf([]Row{first, second, third, rows[1]}[:n], rec); err != nil || !row.Submit.Equal(want.Submit) {
			t.Errorf("of %d rows it is the one of %v, %v", n, row.Submit, err)
		}
	}
	if row, isNewest, err := rowOf([]Row{first, second, third}, rec); err != nil || !isNewest || row.State != "COMPLETED" {
		t.Errorf("%+v, newest %v, %v", row, isNewest, err)
	}
	if row, isNewest, _ := rowOf([]Row{first, second, third, rows[1]}, rec); isNewest || !row.Submit.Equal(third.Submit) {
		t.Errorf("beside a later run it is the row of %v, newest %v", row.Submit, isNewest)
	}
}

func TestEveryRunHasItsOwnRow(t *testing.T) {
	rows, records := runs()
	for _, exact := range []bool{false, true} {
		for i, rec := range records {
			if exact {
				rec.Submitted = rows[i].Submit
				rec.Start = noon.Add(-time.Hour) // a clock that is wrong does no harm
			}
			row, isNewest, err := rowOf(rows, rec)
			if err != nil || !row.Submit.Equal(rows[i].Submit) || isNewest != (i == 2) {
				t.Errorf("exact %v, run %d: row of %v, newest %v, %v", exact, i, row.Submit, isNewest, err)
			}
			// Rows come in their order, late: as long as it is not there, none is taken for it.
			if row, _, err := rowOf(rows[:i], rec); err == nil {
				t.Errorf("exact %v, run %d was given the row of %v", exact, i, row.Submit)
			} else if i > 0 && !errors.Is(err, errNotYet) {
				t.Errorf("exact %v, run %d: %v", exact, i, err)
			}
		}
	}
	// A database that has lost it will never have it.
	if _, _, err := rowOf(rows[1:], records[0]); !errors.Is(err, errNever) {
		t.Errorf("the first run's row is missing: %v", err)
	}
	other := records[1]
	other.Node = "n2"
	if row, _, err := rowOf(rows, other); err == nil {
		t.Errorf("a node that the run was not on was given the row of %v", row.Submit)
	}
	if _, _, err := rowOf(nil, other); !errors.Is(err, ErrNoRow) {
		t.Errorf("no row: %v", err)
	}
}

// A run that was cancelled has its slices until its processes are gone, and the database knows of its end: it is no second run.
func TestARunThatCompletesIsThatOfItsRow(t *testing.T) {
	rows, _ := runs()
	cancelled := rows[0]
	cancelled.State = "CANCELLED by 0"
	running := cancelled
	running.State, running.Ended, running.End = "RUNNING", false, time.Time{}
	since := cancelled.Start.Add(time.Second)
	for what, c := range map[string]struct {
		row              Row
		job              uint32
		node             string
		submitted, since time.Time
		want             bool
	}{
		"completing":                        {cancelled, 7, "n1", cancelled.Submit, since, true},
		"running":                           {running, 7, "n1", running.Submit, since, true},
		"its submission is not known":       {cancelled, 7, "n1", time.Time{}, since, true},
		"on another node":                   {cancelled, 7, "n2", time.Time{}, since, false},
		"another job":                       {cancelled, 8, "n1", cancelled.Submit, since, false},
		"the next run":                      {cancelled, 7, "n1", rows[1].Submit, rows[1].Start, false},
		"the next run, which began at once": {cancelled, 7, "n1", time.Time{}, cancelled.End.Add(time.Second), false},
		"over within its first second":      {cancelled, 7, "n1", time.Time{}, cancelled.End.Add(900 * time.Millisecond), true},
		"a clock that is ahead":             {cancelled, 7, "n1", cancelled.Submit, cancelled.End.Add(time.Minute), true},
	} {
		if got := c.row.IsOfGrant(c.job, c.node, c.submitted, c.since); got != c.want {
			t.Errorf("%s: %v", what, got)
		}
	}
}

// All runs wait, since the database was away: each goes into its own row, in one go.
func TestFlushOfSeveralRuns(t *testing.T) {
	rows, records := runs()
	db := &runsDatabase{rows: rows}
	r := reporter(t, db)
	for i, rec := range records {
		rec.Submitted = rows[i].Submit
		records[i] = rec
		mustWrite(t, r.Spool, rec)
	}
	flush(t, r)
	for i, row := range db.rows {
		if !Stands(row.AdminComment, records[i]) {
			t.Errorf("run %d: %s", i, row.AdminComment)
		}
	}
	if diff := cmp.Diff([2]int{1, 1}, db.calls); diff != "" {
		t.Errorf("asked and wrote (-want +got): %s", diff)
	}
}

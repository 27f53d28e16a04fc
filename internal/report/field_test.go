// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
)

const jobstats = "JS1:H4sIAAAAAAAC/1WMQQ6DIBBF7zJrFwhSwMsQ"

// Where usage goes, and that nothing else is touched.
func TestUsageGoesWhereTheSiteSays(t *testing.T) {
	ours, err := Merge("", sample(7))
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		field    string
		comment  string
		extra    string
		hasExtra bool

		wantComment, wantExtra, outcome string
	}{
		"as ever":             {field: config.FieldAdminComment, wantComment: ours, outcome: OutcomeWritten, hasExtra: true},
		"jobstats":            {field: config.FieldAdminComment, comment: jobstats, hasExtra: true, wantComment: jobstats, wantExtra: ours, outcome: OutcomeWritten},
		"jobstats, 22.05":     {field: config.FieldAdminComment, comment: jobstats, wantComment: jobstats, outcome: "not written: " + errJobstats.Error()},
		"by sacctmgr, 22.05":  {field: config.FieldAdminComment, comment: "js1:short", wantComment: "js1:short", outcome: "not written: " + errJobstats.Error()},
		"another text":        {field: config.FieldAdminComment, comment: "JS10", wantComment: strings.Replace(ours, "{", `{"text":"JS10",`, 1), outcome: OutcomeWritten},
		"extra":               {field: config.FieldExtra, hasExtra: true, wantExtra: ours, outcome: OutcomeWritten},
		"extra, and jobstats": {field: config.FieldExtra, comment: jobstats, hasExtra: true, wantComment: jobstats, wantExtra: ours, outcome: OutcomeWritten},
		"extra, 22.05":        {field: config.FieldExtra, outcome: "not written: " + errNoExtra.Error()},
		"extra of the owner's": {field: config.FieldExtra, extra: "my words", hasExtra: true,
			wantExtra: strings.Replace(ours, "{", `{"text":"my words",`, 1), outcome: OutcomeWritten},
	} {
		t.Run(name, func(t *testing.T) {
			row := ended(7)
			row.AdminComment, row.Extra, row.HasExtra = tc.comment, tc.extra, tc.hasExtra
			db := &database{rows: map[uint32]Row{7: row}}
			r := reporter(t, db)
			r.Field = tc.field
			mustWrite(t, r.Spool, sample(7))
			flush(t, r)
			if got := db.rows[7]; got.AdminComment != tc.wantComment || got.Extra != tc.wantExtra {
				t.Errorf("AdminComment %q, Extra %q; want %q, %q", got.AdminComment, got.Extra, tc.wantComment, tc.wantExtra)
			}
			if got := outcome(t, r, 7); got != tc.outcome {
				t.Errorf("outcome %q, want %q", got, tc.outcome)
			}
			if _, _, err := db.rows[7].Comment(tc.field); (err == nil) != (tc.outcome == OutcomeWritten) {
				t.Errorf("a reader finds it: %v", err)
			}
		})
	}
}

// What jobstats writes between our look and our change stays.
func TestJobstatsThatComesBetween(t *testing.T) {
	row := ended(7)
	row.HasExtra = true
	db := &database{rows: map[uint32]Row{7: row}}
	db.onRow = func(calls int, _ uint32) {
		if calls == 0 {
			db.faults = []error{nil, &ChangedError{Is: jobstats}}
		}
	}
	r := reporter(t, db)
	r.Field = config.FieldAdminComment
	mustWrite(t, r.Spool, sample(7))
	flush(t, r)
	if got := db.rows[7]; got.AdminComment != "" || !Stands(got.Extra, sample(7)) {
		t.Errorf("AdminComment %q, Extra %q", got.AdminComment, got.Extra)
	}
}

// Where the site starts something at a job's end, that has its time first.
func TestAnAdminCommentIsLeftToOthersFirst(t *testing.T) {
	r := reporter(t, &database{})
	r.After = time.Hour
	row := ended(7)
	row.End = time.Now()
	if _, res := r.merge(Update{Row: row}, sample(7)); !errors.Is(res.err, errEpilogSlurmctld) {
		t.Errorf("at once: %+v", res)
	}
	row.End = time.Now().Add(-2 * time.Hour)
	if update, res := r.merge(Update{Row: row}, sample(7)); res != (result{}) || update.Field != FieldAdminComment {
		t.Errorf("later: %+v", res)
	}
	row.End, row.HasExtra, r.Field = time.Now(), true, config.FieldExtra
	if update, res := r.merge(Update{Row: row}, sample(7)); res != (result{}) || update.Field != FieldExtra {
		t.Errorf("Extra is nobody's: %+v", res)
	}
}

// A job's owner fills Extra before we do.
func TestWhatAnOwnerWritesIntoExtraHidesNothing(t *testing.T) {
	row := ended(7)
	row.NodeList = "n[1-2]"
	of2, err := Merge("", sample(7))
	if err != nil {
		t.Fatal(err)
	}
	of2 = strings.Replace(of2, `"n1"`, `"n2"`, 1)
	for name, tc := range map[string]struct {
		extra string
		nodes string
	}{
		"of a newer version":  {`{"vgpu":{"v":9},"a":1}`, "n1"},
		"of no node":          {`{"vgpu":{"v":1,"nodes":{"n9":[]},"refusals":{"n8":"x"}}}`, "n1"},
		"of the other node":   {of2, "n1 n2"},
		"too long":            {strings.Repeat("x", MaxCommentBytes), "n1"},
		"too long, with ours": {strings.Replace(of2, "{", `{"text":"`+strings.Repeat("x", MaxCommentBytes)+`",`, 1), "n1 n2"},
	} {
		text, err := mergeExtra(tc.extra, row, sample(7))
		if err != nil || len(text) > MaxCommentBytes || !Stands(text, sample(7)) {
			t.Errorf("%s: %.200s, %v", name, text, err)
			continue
		}
		comment, err := ParseComment(text)
		if got := strings.Join(comment.NodeNames(), " "); err != nil || got != tc.nodes {
			t.Errorf("%s: nodes %s, want %s, %v", name, got, tc.nodes, err)
		}
	}
}

// Extra holds whatever its owner likes, and no two questions have the same delimiter.
func TestExtraImitatesNoColumn(t *testing.T) {
	const between = "\x1fABC\x1f"
	cells := []string{"hc", "7", "7", "COMPLETED", "0:0", "physics", "UNLIMITED", "1795230580", "1795230582", "1795230588", "1", "n1", jobstats, "a\x1fb\nhc\x1f8\x1f8", "hc"}
	rows, err := parseRows(strings.Join(cells, between)+"\n", between, true)
	if err != nil || len(rows) != 1 || rows[0].TimeLimit != 0 || rows[0].Extra != cells[13] || rows[0].AdminComment != jobstats || !rows[0].HasExtra {
		t.Errorf("%+v, %v", rows, err)
	}
	if first, second := delimiter(), delimiter(); first == second {
		t.Error("a delimiter comes twice")
	}
}

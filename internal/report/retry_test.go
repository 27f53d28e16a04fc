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

	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// A database that is away for long is asked more and more seldom, up to a bound, and by no two nodes in step.
func TestTriesAreFurtherAndFurtherApart(t *testing.T) {
	r := reporter(t, &database{})
	r.Retry = time.Hour
	later := map[string]*waiting{}
	for _, hours := range []int{1, 2, 4, 8, 16, 32, 64, 64, 64} {
		before := time.Now()
		if err := r.conclude(sample(7), result{err: ErrDatabase}, later); err != nil {
			t.Fatal(err)
		}
		wait, want := later["7.0.json"], time.Duration(hours)*time.Hour
		if wait.pause != want || wait.next.Before(before.Add(want/2)) || wait.next.After(time.Now().Add(want/2+want)) {
			t.Errorf("it waits %v and %v, want %v", wait.pause, wait.next.Sub(before), want)
		}
	}
}

// One answer that did not come is enough: the rest waits as long, without a question each.
func TestADatabaseThatIsAwayIsAskedOnce(t *testing.T) {
	db := &database{faults: []error{ErrDatabase}}
	r := reporter(t, db)
	r.Retry = time.Hour
	if err := os.MkdirAll(r.Spool.History(), 0o700); err != nil {
		t.Fatal(err)
	}
	var records []usage.Record
	for job := range uint32(atOnce + 50) {
		records = append(records, sample(job+1))
	}
	later := map[string]*waiting{}
	if err := r.round(t.Context(), records, later); err != nil || db.calls != 1 || len(later) != len(records) {
		t.Fatalf("%d calls, %d of %d records wait: %v", db.calls, len(later), len(records), err)
	}
	first := later["1.0.json"]
	for name, wait := range later {
		if wait.pause != time.Hour || wait.next.Before(first.next) {
			t.Errorf("%s waits for %v until %v, the first until %v", name, wait.pause, wait.next, first.next)
		}
	}
	if err := r.round(t.Context(), records, later); err != nil || db.calls != 1 {
		t.Errorf("asked again before it is time: %d calls, %v", db.calls, err)
	}
}

// Whose comment others keep changing waits like any other, after a few tries.
func TestAMergeIsTriedAFewTimes(t *testing.T) {
	for others, tries := range map[int]int{0: 1, 1: 2, changes - 1: changes, changes: changes, changes + 5: changes} {
		db := &database{rows: map[uint32]Row{7: ended(7)}, faults: []error{nil}}
		for range others {
			db.faults = append(db.faults, &ChangedError{})
		}
		results := reporter(t, db).report(t.Context(), []usage.Record{sample(7)})
		var changed *ChangedError
		if stays := others >= changes; db.calls != 1+tries || errors.As(results[0].err, &changed) != stays || (results[0].outcome == OutcomeWritten) == stays {
			t.Errorf("others were quicker %d times: %d tries, %+v", others, db.calls-1, results[0])
		}
	}
}

// A job of several nodes is looked at again soon, whatever waits longer.
func TestWhatOthersMayWriteToIsLookedAtAgainSoon(t *testing.T) {
	r := reporter(t, &database{})
	r.Retry, r.Settle = time.Hour, time.Minute
	later := map[string]*waiting{}
	for range 50 {
		before := time.Now()
		if err := r.conclude(sample(7), result{err: errSettling}, later); err != nil {
			t.Fatal(err)
		}
		if wait := later["7.0.json"]; wait.pause != time.Hour || wait.next.Before(before.Add(time.Minute)) || wait.next.After(time.Now().Add(3*time.Minute)) {
			t.Fatalf("it waits for %v", wait.next.Sub(before))
		}
	}
}

// What the spool is made of must not keep a reporter busy for ever.
func TestASpoolThatCannotBeUsedIsAnError(t *testing.T) {
	for name, spoil := range map[string]func(r *Reporter) error{
		"no folder":        func(r *Reporter) error { return os.WriteFile(string(r.Spool)+"/usage", nil, 0o600) },
		"no lock":          func(r *Reporter) error { return os.MkdirAll(filepath.Join(r.Spool.Usage(), ".lock"), 0o700) },
		"no place for bad": func(r *Reporter) error { return errors.Join(bad(r), os.WriteFile(r.Spool.History(), nil, 0o600)) },
		"no place for good": func(r *Reporter) error {
			r.Accounting = &database{rows: map[uint32]Row{7: ended(7)}}
			return errors.Join(usage.Write(r.Spool, sample(7)), os.MkdirAll(r.Spool.History()+"/7.0.json/x", 0o700))
		},
		"bad ones cannot go": func(r *Reporter) error {
			return errors.Join(bad(r), os.MkdirAll(r.Spool.History()+"/1.0.json.bad", 0o700))
		},
	} {
		r := reporter(t, &database{})
		if err := spoil(r); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := r.Flush(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

// bad leaves a file in the spool that is no record.
func bad(r *Reporter) error {
	return errors.Join(os.MkdirAll(r.Spool.Usage(), 0o700), os.WriteFile(filepath.Join(r.Spool.Usage(), "1.0.json"), []byte("{"), 0o600))
}

func TestASleepEndsWithItsTimeOrItsContext(t *testing.T) {
	if !sleepFor(t.Context(), time.Nanosecond) || !sleepFor(t.Context(), -time.Hour) {
		t.Error("it was not slept to the end")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if sleepFor(over, time.Hour) {
		t.Error("it was slept to the end")
	}
}

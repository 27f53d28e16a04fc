// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"os"
	"testing"
	"time"
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
	var records []Record
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

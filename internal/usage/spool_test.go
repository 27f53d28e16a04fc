// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func sample(job uint32) Record {
	peak := StepFigures{PeakMiB: new(int64(2998)), Refusals: new(uint64(1))}
	return Record{
		Version: RecordVersion, Job: job, Node: "n1", UID: 1001, Start: noon, End: noon.Add(time.Hour),
		Request: "mem=3000;cores=30", Entitlement: request.Entitlement{Slices: 1, MemMiB: 3000, SMPercent: 30},
		Devices: []Device{{Device: "GPU-aa", MemMiB: 3000, SMPercent: 30, Figures: Figures{StepFigures: peak, Time: Time{GPUSeconds: new(12.5)}}}},
		Steps:   []Step{{Step: "batch", Devices: []StepFigures{peak}}},
	}
}

func mustWrite(t *testing.T, spool rundir.Spool, records ...Record) {
	t.Helper()
	for _, rec := range records {
		if err := Write(spool, rec); err != nil {
			t.Fatal(err)
		}
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	list := []string{}
	for _, entry := range entries {
		if entry.Name() != filepath.Base(rundir.Spool("").Lock()) {
			list = append(list, entry.Name())
		}
	}
	return list
}

func TestWriteAndList(t *testing.T) {
	spool := rundir.Spool(filepath.Join(t.TempDir(), "spool"))
	if records, bad, err := List(spool); err != nil || records != nil || bad != nil {
		t.Errorf("a spool that does not exist: %v, %v, %v", records, bad, err)
	}
	early, earlier, same := sample(9), sample(10), sample(11)
	early.End, earlier.End = noon, noon.Add(-time.Second)
	mustWrite(t, spool, sample(7), early, earlier, same)
	again := sample(7)
	*again.Devices[0].PeakMiB = 3000
	mustWrite(t, spool, again)

	info, err := os.Stat(filepath.Join(spool.Usage(), "7.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode() != 0o600 {
		t.Errorf("mode %v", info.Mode())
	}
	got, bad, err := List(spool)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Record{earlier, early, again, same}, got); diff != "" || len(bad) != 0 {
		t.Errorf("bad %v, diff %s", bad, diff)
	}
}

func TestWriteAfterReportChangesNothing(t *testing.T) {
	spool := rundir.Spool(t.TempDir())
	mustWrite(t, spool, sample(7))
	if err := Keep(spool, sample(7)); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, spool, sample(7))
	if left := names(t, spool.Usage()); len(left) != 0 {
		t.Errorf("spool holds %v", left)
	}
	other := sample(7) // a job id used again after the controller lost its state
	other.Start = noon.Add(time.Minute)
	mustWrite(t, spool, other)
	if left := names(t, spool.Usage()); len(left) != 1 {
		t.Errorf("spool holds %v", left)
	}
}

func TestListNamesWhatIsNoRecord(t *testing.T) {
	spool := rundir.Spool(t.TempDir())
	mustWrite(t, spool, sample(7))
	good, err := os.ReadFile(filepath.Join(spool.Usage(), "7.0.json"))
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{
		"1.0.json":     "",
		"2.0.json":     "{",
		"3.0.json":     `{"version":2,"job":3,"node":"n1"}`,
		"4.0.json":     string(good), // of another job
		"5.0.json":     `{"version":1,"job":5}`,
		"../x":         "",
		"notes.txt":    "hello",
		"07.0.json":    string(good),
		".7.0.json123": "a temporary file",
	} {
		if err := os.WriteFile(filepath.Join(spool.Usage(), filepath.Base(name)), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("7.0.json", filepath.Join(spool.Usage(), "6.0.json")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(spool.Usage(), "8.0.json"), good, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(spool.Usage(), "8.0.json"), 0o666); err != nil {
		t.Fatal(err)
	}
	records, bad, err := List(spool)
	if err != nil || len(records) != 1 {
		t.Errorf("%d records, %v", len(records), err)
	}
	want := []string{"07.0.json", "1.0.json", "2.0.json", "3.0.json", "4.0.json", "5.0.json", "6.0.json", "8.0.json", "notes.txt", "x"}
	if diff := cmp.Diff(want, bad); diff != "" {
		t.Error(diff)
	}
}

func TestFindIsTheNewestRun(t *testing.T) {
	spool := rundir.Spool(t.TempDir())
	if _, err := Find(spool, 7); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("empty spool: %v", err)
	}
	for restart := range 12 {
		rec := sample(7)
		rec.Restart = restart
		mustWrite(t, spool, rec)
		if restart%2 == 0 {
			if err := Keep(spool, rec); err != nil {
				t.Fatal(err)
			}
		}
	}
	mustWrite(t, spool, sample(71))
	runs, err := Find(spool, 7)
	if err != nil || len(runs) != 12 {
		t.Fatalf("got %d runs, %v", len(runs), err)
	}
	for i, rec := range runs {
		if rec.Restart != i || rec.Job != 7 {
			t.Errorf("got restart %d of job %d", rec.Restart, rec.Job)
		}
	}
}

func TestHistoryIsBounded(t *testing.T) {
	spool := rundir.Spool(t.TempDir())
	for job := range MaxHistory + 5 {
		path := filepath.Join(spool.History(), fmt.Sprintf("%d.0.json", job+1))
		if err := os.MkdirAll(spool.History(), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		when := noon.Add(time.Duration(job) * time.Second)
		if err := os.Chtimes(path, when, when); err != nil {
			t.Fatal(err)
		}
	}
	mustWrite(t, spool, sample(900000))
	if err := Keep(spool, sample(900000)); err != nil {
		t.Fatal(err)
	}
	if err := Trim(spool); err != nil {
		t.Fatal(err)
	}
	left := names(t, spool.History())
	if len(left) != MaxHistory {
		t.Errorf("%d files left, want %d", len(left), MaxHistory)
	}
	for job, want := range map[int]bool{1: false, 6: false, 7: true, 900000: true} {
		_, err := os.Stat(filepath.Join(spool.History(), fmt.Sprintf("%d.0.json", job)))
		if (err == nil) != want {
			t.Errorf("job %d kept: %v, want %v", job, err == nil, want)
		}
	}
}

// What the history could not take is not lost.
func TestARecordLeavesTheSpoolOnlyForTheHistory(t *testing.T) {
	spool := rundir.Spool(t.TempDir())
	mustWrite(t, spool, sample(7))
	waiting, _, err := List(spool)
	if err != nil || len(waiting) != 1 {
		t.Fatal(waiting, err)
	}
	// A folder in its place, which no file replaces.
	if err := os.MkdirAll(filepath.Join(spool.History(), "7.0.json", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Keep(spool, waiting[0]); err == nil {
		t.Error("archived")
	}
	if left := names(t, spool.Usage()); !slices.Contains(left, "7.0.json") {
		t.Errorf("the spool holds %v", left)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package waiting

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

func job(id uint32, minutes int) Job {
	return Job{Job: id, Name: "7", Since: noon.Add(time.Duration(minutes) * time.Minute), Limit: time.Hour, Reason: "no GPU fits",
		Want: place.Want{Slices: 2, Mem: request.Mem{Percent: 12.5}, CeilingMiB: 70, SMPercent: 30, Place: request.PlaceSpread,
			GPU: request.Filter{Not: []string{"a100"}}, UUID: request.Filter{Only: []string{"GPU-00000000"}}}}
}

func TestTheListIsKept(t *testing.T) {
	spool := rundir.Spool(filepath.Join(t.TempDir(), "spool"))
	if jobs, err := Read(spool); err != nil || jobs != nil {
		t.Fatalf("without a list: %v, %v", jobs, err)
	}
	want := Jobs{}.Put(job(9, 3)).Put(job(8, 5)).Put(job(7, 3)).Put(job(8, 1))
	if got := want.Numbers(); !slices.Equal(got, []uint32{8, 7, 9}) {
		t.Errorf("the longest waiting is not first: %v", got)
	}
	if err := Write(spool, want); err != nil {
		t.Fatal(err)
	}
	got, err := Read(spool)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Error(err, diff)
	}
	if again := got.Put(job(8, 60)); again.Numbers()[0] != 8 {
		t.Errorf("a job that came back lost its place: %v", again.Numbers())
	}
	if err := Write(spool, got.Without(7, 8, 9)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(spool.Waiting()); !os.IsNotExist(err) {
		t.Errorf("an empty list stays: %v", err)
	}
	if err := Write(spool, nil); err != nil {
		t.Errorf("nobody waits, twice: %v", err)
	}
}

func TestAListOfOthersIsNotBelieved(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"writable": func(path string) error { return os.Chmod(path, 0o666) },
		"garbage":  func(path string) error { return os.WriteFile(path, []byte("[{"), 0o644) },
		"a link":   func(path string) error { return os.Symlink(path+".elsewhere", path+".link") },
	} {
		t.Run(name, func(t *testing.T) {
			spool := rundir.Spool(t.TempDir())
			if err := Write(spool, Jobs{job(1, 1)}); err != nil {
				t.Fatal(err)
			}
			if err := spoil(spool.Waiting()); err != nil {
				t.Fatal(err)
			}
			if name == "a link" {
				if err := os.Rename(spool.Waiting(), spool.Waiting()+".elsewhere"); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(spool.Waiting()+".link", spool.Waiting()); err != nil {
					t.Fatal(err)
				}
			}
			if jobs, err := Read(spool); err == nil || len(jobs) > 0 {
				t.Errorf("believed: %v", jobs)
			}
			if err := Write(spool, Jobs{job(2, 1)}); err != nil {
				t.Fatal(err)
			}
			if jobs, err := Read(spool); err != nil || !slices.Equal(jobs.Numbers(), []uint32{2}) {
				t.Errorf("not made anew: %v, %v", jobs, err)
			}
		})
	}
}

func TestWhoGoesFirst(t *testing.T) {
	held, told, late := job(2, 2), job(3, 3), job(4, 4)
	held.Idle, told.Told, late.Told = true, noon.Add(8*time.Minute), noon.Add(7*time.Minute)
	jobs := Jobs{job(1, 1), held, told, late, job(5, 5)}
	now := noon.Add(9 * time.Minute)
	for of, want := range map[uint32][]uint32{1: nil, 5: {1, 3}, 6: {1, 3, 5}} {
		var got []uint32
		for _, w := range jobs.Before(of, now) {
			got = append(got, w.Job)
			if w.Want.Ends != now.Add(time.Hour).Unix() {
				t.Errorf("job %d ends at %d", w.Job, w.Want.Ends)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("before job %d go %v, want %v", of, got, want)
		}
	}
	var many Jobs
	for id := range uint32(3 * Looked) {
		many = append(many, job(id+1, 1))
	}
	if got := many.Before(0, now); len(got) != Looked {
		t.Errorf("%d jobs are looked at", len(got))
	}
	unlimited := job(1, 1)
	unlimited.Limit, unlimited.Want.Ends = 0, 5
	if w := unlimited.Waiter(now); w.Want.Ends != 0 {
		t.Errorf("a job without a limit ends at %d", w.Want.Ends)
	}
}

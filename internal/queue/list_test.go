// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
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
		many[id].UID = id % 7
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

// Who has thousands of jobs that find no room stands before others with some of them.
func TestAFloodOfJobs(t *testing.T) {
	const hostile, neighbour = 1, 2
	of := func(uid uint32, j Job) Job {
		j.UID = uid
		return j
	}
	var jobs Jobs
	for id := range uint32(500) {
		jobs = jobs.Put(of(hostile, job(id+1, int(id))))
	}
	if len(jobs) != MostOfUser || jobs[0].Job != 1 || jobs[MostOfUser-1].Job != MostOfUser {
		t.Fatalf("listed are %v", jobs.Numbers())
	}
	jobs = jobs.Put(of(neighbour, job(5000, 5000)))
	if before := jobs.Before(5000, noon); len(before) != LookedOfUser {
		t.Errorf("%d jobs of one user are before another's", len(before))
	}
	for id := range uint32(Most + 200) { // of many users
		jobs = jobs.Put(of(10+id%40, job(10000+id, 6000+int(id))))
	}
	if _, listed := jobs.Find(5000); !listed || len(jobs) != Most {
		t.Errorf("of %d jobs the neighbour's is one: %v", len(jobs), listed)
	}
	count := make(map[uint32]int)
	for _, j := range jobs {
		count[j.UID]++
	}
	if count[hostile] > Most/40 {
		t.Errorf("others were left out, and one has %d", count[hostile])
	}
	large := job(1<<20, -1)
	large.Excluded = string(make([]byte, mostBytes))
	if got := jobs.Put(large); len(got) != Most {
		t.Errorf("one of %d bytes is listed", mostBytes)
	}
	spool := rundir.Spool(t.TempDir())
	for i := range jobs {
		jobs[i].Reason = strings.Repeat("x", mostBytes-2000)
	}
	if err := Write(spool, jobs); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(spool); err != nil || len(got) != Most {
		t.Errorf("a list as long as may be cannot be read: %d, %v", len(got), err)
	}
}

// Jobs that nobody lets start take no place from those that could.
func TestHeldJobsAreInNobodysWay(t *testing.T) {
	var jobs Jobs
	for id := range uint32(4 * Looked) {
		idle := job(id+1, int(id))
		idle.Idle, idle.UID = true, id%20
		jobs = append(jobs, idle)
	}
	jobs = append(jobs, job(9000, 9000))
	looks := jobs.Looks(noon)
	if last := looks[len(looks)-1]; jobs[last.At].Job != 9000 || !last.Claims || len(looks) != Looked+1 {
		t.Errorf("of %d jobs the last that is looked at is %d", len(looks), jobs[last.At].Job)
	}
	if before := jobs.Before(0, noon); len(before) != 1 {
		t.Errorf("%d claim room", len(before))
	}
}

// Room is kept for one that is told of it, and not for one after the other of a user whose jobs never come.
func TestCarelessUsersKeepNothing(t *testing.T) {
	var jobs Jobs
	for id := range uint32(10) {
		jobs = append(jobs, job(id+1, int(id)))
		jobs[id].UID = id % 2
	}
	now := noon.Add(time.Hour)
	for i := range jobs {
		if jobs[i].UID == 1 {
			continue
		}
		jobs[i].Told = now.Add(-ComesWithin)
		jobs[i].Missed = 1
	}
	if before := jobs.Before(0, now); len(before) != 5 || before[0].Job != 2 {
		t.Errorf("before others are %v", before)
	}
	if careless := jobs.Careless(now); !careless[0] || careless[1] {
		t.Errorf("careless are %v", careless)
	}
}

// Those that are away neither wait nor take a place from who does, and are asked about now and then.
func TestWhoIsAway(t *testing.T) {
	away := func(id uint32, uid uint32, asked time.Duration) Job {
		j := job(id, -60)
		j.UID, j.Away = uid, noon.Add(-asked)
		return j
	}
	jobs := Jobs{away(1, 1, time.Hour), away(2, 1, time.Second), away(3, 1, 2*time.Hour)}
	for id := range uint32(4) {
		jobs = jobs.Put(job(id+10, int(id)))
	}
	if got := jobs.Numbers(); !slices.Equal(got, []uint32{1, 2, 3, 10, 11, 12, 13}) {
		t.Errorf("on the list are %v", got)
	}
	if got := jobs.Waiting().Numbers(); !slices.Equal(got, []uint32{10, 11, 12, 13}) {
		t.Errorf("there wait %v", got)
	}
	for cheap, want := range map[int][]uint32{8: {10, 11, 12, 13, 3, 1}, 5: {10, 11, 12, 13, 3}, 4: {1, 2, 3, 10, 11, 12, 13}} {
		if got := jobs.Asked(noon, cheap); !slices.Equal(got, want) {
			t.Errorf("of at most %d it is asked about %v, want %v", cheap, got, want)
		}
	}
	if looks := jobs.Looks(noon); len(looks) != 4 || jobs[looks[0].At].Job != 10 {
		t.Errorf("looked at are %v", looks)
	}
	if before := jobs.Before(0, noon); len(before) != 4 {
		t.Errorf("first come %v", before)
	}
	for id := range uint32(MostOfUser + 10) {
		jobs = jobs.Put(job(id+100, 10+int(id)))
	}
	if got := jobs.Waiting(); len(got) != MostOfUser || len(jobs) != MostOfUser+3 {
		t.Errorf("there wait %d of %d", len(got), len(jobs))
	}
	for id := range uint32(MostAwayOfUser - 3) {
		if !jobs.RoomAway(1) {
			t.Errorf("there is no room for job %d", id)
		}
		jobs = append(jobs, away(id+1000, 1, 0))
	}
	if jobs.RoomAway(1) || !jobs.RoomAway(2) {
		t.Error("a user's are not bounded, or another's are by his")
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/discover"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

const (
	gpu   = device.UUID("GPU-a")
	other = device.UUID("GPU-b")
	mib   = 1 << 20
)

func slice(job, uid uint32, uuid device.UUID) state.Slice {
	return state.Slice{Job: job, UID: uid, Slice: device.Slice{Device: uuid}}
}

// proc is a /proc of the test's own.
type proc struct {
	t   *testing.T
	dir string
}

func (p proc) write(pid int, name, text string) {
	p.t.Helper()
	path := filepath.Join(p.dir, strconv.Itoa(pid), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p proc) process(pid int, uid uint32) {
	p.write(pid, "status", fmt.Sprintf("Name:\tx\nUid:\t%d\t0\t0\t0\n", uid))
}

func (p proc) page(pid int, job uint32) {
	p.t.Helper()
	dir := filepath.Join(p.dir, strconv.Itoa(pid), "root", rundir.Self)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := ledger.WriteLimits(filepath.Join(dir, ledger.LimitsFile), ledger.Limits{Job: job, UID: 1000}); err != nil {
		p.t.Fatal(err)
	}
}

func node(t *testing.T) (Auditor, proc) {
	dir := t.TempDir()
	return Auditor{Run: "/run/v", Proc: dir, WholeNode: true}, proc{t, dir}
}

func held(pid int, bytes uint64) discover.Held {
	return discover.Held{PID: pid, Bytes: bytes, Known: true}
}

func on(processes ...discover.Held) map[device.UUID]discover.Holders {
	return map[device.UUID]discover.Holders{gpu: {Processes: processes}}
}

func same(t *testing.T, want, got Result) {
	t.Helper()
	got.Strangers = nil // they have a test of their own
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestEveryEvidenceOfAJobCounts(t *testing.T) {
	a, p := node(t)
	for pid := 10; pid < 16; pid++ {
		p.process(pid, 1000)
	}
	p.write(10, "cgroup", "5:devices:/slurm/uid_1000/job_7/step_0/task_0\n")
	p.write(11, "cgroup", "0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0\n")
	p.page(12, 7)
	p.write(13, "environ", "A=1\x00VGPU_STEP_DIR=/run/v/jobs/7/steps/0\x00")
	p.write(14, "environ", "VGPU_STEP_DIR=/elsewhere/jobs/7/steps/0\x00")
	same(t, Result{
		Slices: map[Slice]Total{{7, gpu}: {Bytes: 15 * mib, Processes: 4}, {8, gpu}: {}},
		Others: map[device.UUID]Total{gpu: {Bytes: 48 * mib, Processes: 2}},
	}, a.Totals([]state.Slice{slice(7, 1000, gpu), slice(8, 1001, gpu), slice(7, 1000, other)},
		on(held(10, 1*mib), held(11, 2*mib), held(12, 4*mib), held(13, 8*mib), held(14, 16*mib), held(15, 32*mib))))
}

// A user may write what he likes into his environment and mount what he likes over the page.
func TestNobodyPassesForAnotherUsersJob(t *testing.T) {
	a, p := node(t)
	p.process(10, 1001)
	p.write(10, "environ", "VGPU_STEP_DIR=/run/v/jobs/7/steps/0\x00")
	p.process(11, 1001)
	p.page(11, 7)
	p.process(12, 1001) // Slurm's cgroup is right whatever the others say
	p.write(12, "cgroup", "0::/x/slurmstepd.scope/job_8/step_0/user/job_7/step_0\n")
	p.page(12, 7)
	same(t, Result{
		Slices: map[Slice]Total{{7, gpu}: {}, {8, gpu}: {Bytes: 4 * mib, Processes: 1}},
		Others: map[device.UUID]Total{gpu: {Bytes: 3 * mib, Processes: 2}},
	}, a.Totals([]state.Slice{slice(7, 1000, gpu), slice(8, 1001, gpu)}, on(held(10, 1*mib), held(11, 2*mib), held(12, 4*mib))))
}

// Slurm 26.05 names a job's folder by the SLUID of its run.
func TestFolderOfARun(t *testing.T) {
	const sluid, another = "sE0DM82WJCSY00", "sE0DM82WVYZP00"
	a, p := node(t)
	a.Run = rundir.Dir(t.TempDir())
	for job, name := range map[uint32]string{7: sluid, 8: ""} {
		if err := os.MkdirAll(a.Run.Job(job), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := grant.Write(a.Run.Grant(job), grant.Grant{Job: job, UID: 1000, SLUID: name, Refusal: "a test"}); err != nil {
			t.Fatal(err)
		}
	}
	for pid := 10; pid < 14; pid++ {
		p.process(pid, 1000)
	}
	p.write(10, "cgroup", "0::/system.slice/n1_slurmstepd.scope/"+sluid+"/step_0/user/task_0\n")
	// What the user made below does not count, and neither do page and environment.
	p.write(11, "cgroup", "0::/system.slice/slurmstepd.scope/"+sluid+"/step_0/user/task_0/slurmstepd.scope/job_8/step_0\n")
	p.page(11, 8)
	// The folder of a run that holds no slice.
	p.write(12, "cgroup", "0::/system.slice/slurmstepd.scope/"+another+"/step_0/user/task_0/slurmstepd.scope/job_8/step_0\n")
	p.write(12, "environ", "VGPU_STEP_DIR="+a.Run.Jobs()+"/8/steps/0\x00")
	p.write(13, "cgroup", "0::/system.slice/slurmstepd.scope/"+another+"/step_0/user/task_0\n")
	p.page(13, 8)
	same(t, Result{
		Slices: map[Slice]Total{{7, gpu}: {Bytes: 3 * mib, Processes: 2}, {8, gpu}: {}},
		Others: map[device.UUID]Total{gpu: {Bytes: 12 * mib, Processes: 2}},
	}, a.Totals([]state.Slice{slice(7, 1000, gpu), slice(8, 1000, gpu)}, on(held(10, 1*mib), held(11, 2*mib), held(12, 4*mib), held(13, 8*mib))))
}

// Where Slurm has a folder of its own, a user books nothing on another of his jobs.
func TestCgroupsThatSayDifferentThingsSayNothing(t *testing.T) {
	_, p := node(t)
	const line = "%d:x:/slurm/uid_1000/job_%d/step_0\n"
	for text, want := range map[string]struct {
		job uint32
		ok  bool
	}{
		fmt.Sprintf(line, 1, 7): {7, true}, fmt.Sprintf(line+line, 1, 7, 2, 7): {7, true}, fmt.Sprintf(line+line, 1, 7, 2, 8): {0, false},
		"": {0, false}, "0::/\n": {0, false}, "0::/\n" + fmt.Sprintf(line, 1, 7): {7, true},
	} {
		p.write(10, "cgroup", text)
		if job, ok := (known{}).ofCgroup(filepath.Join(p.dir, "10")); job != want.job || ok != want.ok {
			t.Errorf("%q: %d, %v", text, job, ok)
		}
	}
}

func TestAUserBooksNothingOnAnotherOfHisJobs(t *testing.T) {
	a, p := node(t)
	slurms := map[int]string{
		10: "5:freezer:/slurm_n1/uid_1000/job_7/step_0/task_0\n",
		11: "1:name=systemd:/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_8/step_0\n5:freezer:/slurm/uid_1000/job_7/step_0\n",
		12: "0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_0\n", // holds no slice
		13: "0::/user.slice/user-1000.slice/user@1000.service/x/uid_1000/job_8/step_0\n",
		14: "0::/../../user.slice/user-1000.slice/user@1000.service/x/uid_1000/job_8/step_0\n", // as a container sees it
	}
	for pid, text := range slurms {
		p.process(pid, 1000)
		p.write(pid, "cgroup", text)
		if pid < 13 {
			p.page(pid, 8)
			p.write(pid, "environ", "VGPU_STEP_DIR=/run/v/jobs/8/steps/0\x00")
		}
	}
	same(t, Result{
		Slices: map[Slice]Total{{7, gpu}: {Bytes: 3 * mib, Processes: 2}, {8, gpu}: {}},
		Others: map[device.UUID]Total{gpu: {Bytes: 28 * mib, Processes: 3}},
	}, a.Totals([]state.Slice{slice(7, 1000, gpu), slice(8, 1000, gpu)},
		on(held(10, 1*mib), held(11, 2*mib), held(12, 4*mib), held(13, 8*mib), held(14, 16*mib))))
}

// What a user may make, his root folder and his environment, may be in a file system of his that does not answer.
func TestNobodyWaitsLongForAUser(t *testing.T) {
	a, p := node(t)
	hang := make(chan struct{})
	defer close(hang)
	jobs := a.known([]state.Slice{slice(7, 1000, gpu)})
	if _, ok := jobs.patiently(1000, func() (uint32, bool) { <-hang; return 7, true }); ok {
		t.Error("an answer that never came is believed")
	}
	if _, ok := jobs.patiently(1000, func() (uint32, bool) { return 7, true }); ok {
		t.Error("he is asked again, and can have each process cost a second")
	}
	if job, ok := jobs.patiently(1001, func() (uint32, bool) { return 7, true }); job != 7 || !ok {
		t.Error("another user is not asked")
	}
	p.process(10, 1000)
	p.write(10, "cgroup", "5:devices:/slurm/uid_1000/job_7/step_0/task_0\n")
	if job, _, is := a.jobOf(10, jobs); job != 7 || is != ofJob {
		t.Error("the kernel is not believed any more")
	}
}

func TestAUserIsToldOfHisOwnSlices(t *testing.T) {
	a, p := node(t)
	a.UID = 1000
	p.process(10, 1000)
	p.write(10, "cgroup", "0::/x/slurmstepd.scope/job_7/step_0\n")
	p.process(11, 1001)
	p.write(11, "cgroup", "0::/x/slurmstepd.scope/job_8/step_0\n")
	same(t, Result{Slices: map[Slice]Total{{7, gpu}: {Bytes: 1 * mib, Processes: 1}}, Others: map[device.UUID]Total{}},
		a.Totals([]state.Slice{slice(7, 1000, gpu), slice(8, 1001, gpu)}, on(held(10, 1*mib), held(11, 2*mib))))
}

func TestAProcessOnAGPUThatIsNotItsJobsIsNobodys(t *testing.T) {
	a, p := node(t)
	p.process(10, 1000)
	p.write(10, "cgroup", "0::/x/slurmstepd.scope/job_7/step_0\n")
	same(t, Result{Slices: map[Slice]Total{}, Others: map[device.UUID]Total{gpu: {Bytes: 1 * mib, Processes: 1}}},
		a.Totals([]state.Slice{slice(7, 1000, other)}, on(held(10, 1*mib))))
}

func TestWhatCannotBeKnownIsSaid(t *testing.T) {
	mine := []state.Slice{slice(7, 1000, gpu)}
	for name, tc := range map[string]struct {
		change  func(*Auditor, proc)
		holders map[device.UUID]discover.Holders
		unknown string
	}{
		"no list": {nil, map[device.UUID]discover.Holders{gpu: {Err: errors.New("the GPU is lost")}}, "the GPU is lost"},
		"no size": {func(_ *Auditor, p proc) { p.write(10, "cgroup", "0::/x/slurmstepd.scope/job_7/step_0\n") },
			on(discover.Held{PID: 10}), "the driver does not say what process 10 holds"},
		"foreign pids": {func(a *Auditor, _ proc) { a.WholeNode = false }, on(held(99, mib)),
			"the driver names process 99, which is not in this pid namespace"},
		"no pids":       {func(a *Auditor, _ proc) { a.WholeNode = false }, on(), "the driver names no process in this pid namespace"},
		"ended by then": {nil, on(held(99, mib)), ""},
		"nobody":        {nil, on(), ""},
	} {
		t.Run(name, func(t *testing.T) {
			a, p := node(t)
			p.process(10, 1000)
			if tc.change != nil {
				tc.change(&a, p)
			}
			if got := a.Totals(mine, tc.holders).Slices[Slice{7, gpu}]; got.Unknown != tc.unknown {
				t.Errorf("got %+v", got)
			}
		})
	}
}

func TestWhoHasNoSliceOfAGPUIsNamed(t *testing.T) {
	a, p := node(t)
	for pid := 10; pid < 13; pid++ {
		p.process(pid, uint32(990+pid))
	}
	p.write(10, "cgroup", "0::/x/slurmstepd.scope/job_7/step_0\n")
	p.write(11, "cgroup", "0::/x/slurmstepd.scope/job_8/step_0\n") // whose slice is of the other GPU
	found := on(held(10, 1*mib), held(11, 2*mib), held(12, 4*mib), held(13, 8*mib))
	found[other] = discover.Holders{Processes: []discover.Held{{PID: 12}}}
	slices := []state.Slice{slice(7, 1000, gpu), slice(8, 1001, other)}
	want := map[device.UUID][]Stranger{
		gpu:   {{PID: 11, UID: 1001, Bytes: 2 * mib, Known: true}, {PID: 12, UID: 1002, Bytes: 4 * mib, Known: true}},
		other: {{PID: 12, UID: 1002}},
	}
	if diff := cmp.Diff(want, a.Totals(slices, found).Strangers); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	a.UID = 1000
	if got := a.Totals(slices, found).Strangers; len(got) != 0 {
		t.Errorf("user 1000 is told of %v", got)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The kinds of jobs of docs/compatibility.md that no other file is about.

// TestASuspendedJobGivesItsTimeAndKeepsItsMemory: its neighbour has the GPU as if it were not there, and its own again with it.
func TestASuspendedJobGivesItsTimeAndKeepsItsMemory(t *testing.T) {
	begin(t)
	first, firstLine := busyIn(t, one, "suspended")
	second, secondLine := busyIn(t, two, "beside")
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=50", "rm -f go; vgpu-fill --upto 1000 --hold-until go > /dev/null & "+firstLine+"; touch go; wait; rm go")
	slicesOf(t, job)
	neighbour := submit(t, two, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=40 --vgpu-policy=elastic", secondLine)
	slicesOf(t, neighbour)
	has := func(b busyProgram, what string, right func(float64) bool) {
		t.Helper()
		after := len(b.seconds())
		until(t, what, 60*time.Second, func() error {
			shares := b.seconds()
			if len(shares) <= after || !slices.ContainsFunc(shares[after:], right) {
				return fmt.Errorf("it had %v", shares[min(after, len(shares)):])
			}
			return nil
		})
	}
	has(first, "the first job's half", func(share float64) bool { return share > 40 })
	ok(t, root, "scontrol suspend "+job)
	awaitState(t, job, "SUSPENDED")
	has(second, "the neighbour to have more than the suspended job leaves", func(share float64) bool { return share > 70 })
	if s := statusOf(t, root, job, ""); s.UsedMiB == nil || *s.UsedMiB < 1000 {
		t.Errorf("a suspended job of 1000 MiB holds %+v", s)
	}
	if held := slicesOf(t, job); len(held) != 1 || held[0].MemMiB != 3000 {
		t.Errorf("a suspended job's slices: %+v", held)
	}
	ok(t, root, "scontrol resume "+job)
	has(first, "the first job's half again", func(share float64) bool { return share > 40 })
	has(second, "the neighbour to give it back", func(share float64) bool { return share < 62 })
	first.end()
	second.end()
	finish(t, one, job)
	finish(t, two, neighbour)
}

// TestEachTaskHasASliceOfItsOwn where that is asked for, of the job or of a step.
func TestEachTaskHasASliceOfItsOwn(t *testing.T) {
	begin(t)
	show := "sh -c 'echo $SLURM_LOCALID $CUDA_VISIBLE_DEVICES'"
	script := "echo batch $CUDA_VISIBLE_DEVICES; srun " + show + "; echo none; srun -n1 --vgpu-bind=none " + show
	out := batch(t, one, "-n4 --gres=vgpu:2 --vgpu-mem=3000 --vgpu-bind=task", script)
	both := strings.Fields(out)[1]
	gpus := strings.Split(both, ",") // UUIDs where the node's other GPUs are not masked
	if len(gpus) != 2 || gpus[0] == gpus[1] || c.Isolation == "strict" && both != "0,1" {
		t.Fatalf("a batch script sees:\n%s", out)
	}
	bound, all, _ := strings.Cut(out, "none\n")
	want := lines(fmt.Sprintf("batch %s\n0 %[2]s\n1 %[3]s\n2 %[2]s\n3 %[3]s\n", both, gpus[0], gpus[1]))
	if got := lines(bound); !slices.Equal(got, want) || all != "0 "+both+"\n" {
		t.Errorf("want %q and then both, got %q and %s", want, got, all)
	}
	out = ok(t, one, "srun -n2 --gres=vgpu:2 --vgpu-mem=3000 --vgpu-bind=task vgpu-fill --upto 100").Stdout
	if strings.Count(out, "stopped as asked after 100 MiB") != 2 {
		t.Errorf("two tasks with a slice each: %s", out)
	}
	if result := run(t, one, "srun --gres=vgpu:1 --vgpu-bind=gpu true"); result.Code == 0 || !strings.Contains(result.Stderr, "--vgpu-bind=gpu: want none or task") {
		t.Errorf("%s", result)
	}
}

// TestDaemonsThatRestartKeepJobs: whatever ends a daemon, jobs that run keep their slices, and others come and go.
func TestDaemonsThatRestartKeepJobs(t *testing.T) {
	for name, restart := range map[string]func(t *testing.T) error{
		"slurmctld ended":  func(*testing.T) error { return again("slurmctld", syscall.SIGTERM) },
		"slurmctld killed": func(*testing.T) error { return again("slurmctld", syscall.SIGKILL) },
		"slurmd killed":    func(*testing.T) error { return again("n1", syscall.SIGKILL) },
		"slurmdbd killed":  func(*testing.T) error { return again("slurmdbd", syscall.SIGKILL) },
		"reconfigured": func(t *testing.T) error {
			ok(t, root, "scontrol reconfigure")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			begin(t)
			killable(t)
			job, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=20")
			whole, releaseWhole := holding(t, one, "-p whole --gpus=1")
			before := slicesOf(t, job)
			holdsOn(t, "w1", whole)
			for _, id := range []string{job, whole} {
				until(t, "its script to run", 30*time.Second, func() error {
					if out := output(t, one, id); !strings.Contains(out, "started") {
						return fmt.Errorf("it wrote %q", out)
					}
					return nil
				})
			}
			if strings.HasPrefix(name, "slurmctld") {
				written(t, job)
			} else {
				launched(t, job)
			}
			if err := restart(t); err != nil {
				t.Fatal(err)
			}
			answers(t)
			if out := batch(t, two, "--gres=vgpu:1 --vgpu-mem=2000", seen); out != "2000\n" {
				t.Errorf("a job after it sees %s", out)
			}
			if after := slicesOf(t, job); !slices.Equal(before, after) {
				t.Errorf("slices before %+v, after %+v", before, after)
			}
			if out := strings.TrimSpace(ok(t, one, "srun --overlap --jobid="+job+" "+seen).Stdout); out != "3000" {
				t.Errorf("a step of the old job sees %s", out)
			}
			release()
			releaseWhole()
			finish(t, one, job)
			finish(t, one, whole)
		})
	}
}

// written waits until Slurm's daemons have a running job on their disks.
func written(t *testing.T, job string) {
	t.Helper()
	launched(t, job)
	saved(t, job)
}

// killable makes sure that a slurmctld which is killed starts again: one of 26.05 does not before it has written how much users have used, as it
// does after minutes and when it ends. No job may begin meanwhile.
func killable(t *testing.T) {
	t.Helper()
	if _, err := os.Stat(c.Home.Path("state", "assoc_usage")); err == nil {
		return
	}
	if err := again("slurmctld", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	answers(t)
}

// saved waits until slurmctld has saved a running job.
func saved(t *testing.T, job string) {
	t.Helper()
	started := time.Now()
	ok(t, root, "scontrol update JobId="+job+" Comment=started") // some releases save only what has changed
	until(t, "slurmctld to have saved the jobs, as it does every few seconds", 60*time.Second, func() error {
		info, err := os.Stat(c.Home.Path("state", "job_state"))
		if err == nil && !info.ModTime().After(started) {
			err = fmt.Errorf("saved at %s, wanted after %s", info.ModTime(), started)
		}
		return err
	})
}

// launched has slurmd write down which jobs it knows, as it does with the tasks of a step that it launches and with the end of a job.
func launched(t *testing.T, job string) {
	t.Helper()
	ok(t, one, "srun --overlap --jobid="+job+" true")
}

// answers waits for slurmctld.
func answers(t *testing.T) {
	t.Helper()
	until(t, "slurmctld to answer", 60*time.Second, func() error {
		if result := run(t, root, "scontrol ping"); !strings.Contains(result.Stdout, "UP") {
			return fmt.Errorf("%s", result)
		}
		return nil
	})
}

func again(daemon string, signal syscall.Signal) error {
	if err := c.StopDaemon(daemon, signal); err != nil {
		return err
	}
	return c.StartDaemon(daemon)
}

// TestAJobEndsAtItsTimeLimit, and its slice with it.
func TestAJobEndsAtItsTimeLimit(t *testing.T) {
	begin(t)
	job, _ := holding(t, one, "--gres=vgpu:1 --vgpu-mem=140000")
	slicesOf(t, job)
	ok(t, root, "scontrol update JobId="+job+" EndTime=now+1")
	until(t, "the time limit", 100*time.Second, func() error {
		if now := state(t, job); now != "TIMEOUT" {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
	if out := batch(t, two, "--gres=vgpu:2 --vgpu-mem=140000", seen); out != "140000\n140000\n" {
		t.Errorf("after it another sees %s", out)
	}
	awaitUsage(t, job, 60*time.Second)
}

func TestAJobWaitsForAnother(t *testing.T) {
	begin(t)
	first, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=100000")
	slicesOf(t, first)
	second := submit(t, one, "-d afterok:"+first+" --gres=vgpu:1 --vgpu-mem=120000", seen)
	never := submit(t, one, "--kill-on-invalid-dep=yes -d afternotok:"+first+" --gres=vgpu:1 --vgpu-mem=1000", seen)
	held := submit(t, one, "-H --gres=vgpu:1 --vgpu-mem=2000", seen)
	if a, b := state(t, second), state(t, held); a != "PENDING" || b != "PENDING" {
		t.Errorf("they are %s and %s", a, b)
	}
	release()
	if out := finish(t, one, second); out != "120000\n" {
		t.Errorf("what depends on it sees %s", out)
	}
	ok(t, root, "scontrol release "+held)
	if out := finish(t, one, held); out != "2000\n" {
		t.Errorf("what was held sees %s", out)
	}
	until(t, "the end of what cannot begin", 60*time.Second, func() error {
		if now := state(t, never); now != "CANCELLED" {
			return fmt.Errorf("it is %s", now)
		}
		return nil
	})
}

// TestPreemption: Slurm ends the job that is in the way by its counts; its slice is free before the other one begins.
func TestPreemption(t *testing.T) {
	for mode, want := range map[string]string{"REQUEUE": "PENDING", "CANCEL": "PREEMPTED"} {
		t.Run(mode, func(t *testing.T) {
			begin(t)
			ok(t, root, "scontrol update PartitionName=vgpu PreemptMode="+mode)
			defer ok(t, root, "scontrol update PartitionName=vgpu PreemptMode=REQUEUE")
			low, release := holding(t, one, "--requeue --gres=vgpu:2 --vgpu-mem=100000")
			slicesOf(t, low)
			if out := batch(t, two, "-p high --gres=vgpu:2 --vgpu-mem=100000", seen); out != "100000\n100000\n" {
				t.Errorf("it sees %s", out)
			}
			if mode == "CANCEL" {
				if now := state(t, low); now != want {
					t.Errorf("what was in the way is %s", now)
				}
				release()
				return
			}
			awaitState(t, low, "RUNNING", "PENDING")
			release()
			if out := finish(t, one, low); restarts(t, low) != "1" || !strings.HasSuffix(out, "released\n") {
				t.Errorf("what was in the way came back %s times and wrote %s", restarts(t, low), out)
			}
		})
	}
}

func TestAReservation(t *testing.T) {
	begin(t)
	ok(t, root, "scontrol create reservation ReservationName=mine StartTime=now Duration=10 Users="+one.Name+" Nodes=n1")
	defer ok(t, root, "scontrol delete ReservationName=mine")
	if out := batch(t, one, "--reservation=mine --gres=vgpu:1 --vgpu-mem=3000", "echo $SLURMD_NODENAME; "+seen); out != "n1\n3000\n" {
		t.Errorf("whose it is sees %s", out)
	}
	if out := batch(t, two, "-p all --gres=vgpu:1 --vgpu-mem=3000", "echo $SLURMD_NODENAME"); out != "n2\n" {
		t.Errorf("another user's job ran on %s", out)
	}
	if result := run(t, two, "srun --reservation=mine --gres=vgpu:1 true"); result.Code == 0 {
		t.Errorf("another user has the reservation: %s", result)
	}
}

// TestANodeThatIsLost: the job goes back into the queue, and has its slice once when the node is there again.
func TestANodeThatIsLost(t *testing.T) {
	begin(t)
	job, release := holding(t, one, "--requeue --gres=vgpu:1 --vgpu-mem=140000")
	before := slicesOf(t, job)
	ok(t, root, "scontrol update NodeName=n1 State=DOWN Reason=lost")
	until(t, "the job to go back", 60*time.Second, func() error {
		if n := restarts(t, job); n != "1" {
			return fmt.Errorf("it is %s, restarts %s", state(t, job), n)
		}
		return nil
	})
	run(t, root, "scontrol update NodeName=n1 State=RESUME") // if its slurmd was not quicker
	awaitState(t, job, "RUNNING")
	until(t, "its slice", 30*time.Second, func() error {
		if held := stateSlices(t); len(held) != 1 || fmt.Sprint(held[0].Job) != job || held[0].MemMiB != before[0].MemMiB {
			return fmt.Errorf("%+v", held)
		}
		return nil
	})
	release()
	finish(t, one, job)
}

// TestFourNodes: a slice on each, whatever else the nodes do with their GPUs.
func TestFourNodes(t *testing.T) {
	begin(t)
	out := batch(t, one, "-p each -N4 --ntasks-per-node=1 --gres=vgpu:1 --vgpu-mem=3000", "srun sh -c '"+seen+"; echo $SLURMD_NODENAME'; srun -N2 -n2 --vgpu-mem=1000 "+seen)
	if got := lines(out); !slices.Equal(got, []string{"1000", "1000", "3000", "3000", "3000", "3000", "n1", "n2", "s1", "w1"}) {
		t.Errorf("on four nodes: %q", got)
	}
	for _, node := range c.Nodes {
		until(t, "no folder on "+node, 30*time.Second, func() error {
			if left, _ := os.ReadDir(c.Home.Path("run", node, "jobs")); len(left) > 0 {
				return fmt.Errorf("%v", left)
			}
			return nil
		})
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/cluster"
)

// array submits one that is held: each task leaves a line whenever it starts, and stays until the gate
// opens. Task 0 ends at once.
func array(t *testing.T, u cluster.User, options string) (job string, release func()) {
	t.Helper()
	gate := filepath.Join(openDir(t), "gate")
	job = submit(t, u, "-H "+options, `echo $SLURM_RESTART_COUNT >> runs-$SLURM_ARRAY_JOB_ID-$SLURM_ARRAY_TASK_ID
[ $SLURM_ARRAY_TASK_ID = 0 ] || while [ ! -e `+gate+` ]; do sleep 0.1; done`)
	return job, func() {
		if err := os.WriteFile(gate, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// runsOf is how often the program of a task was started.
func runsOf(u cluster.User, job string, task int) int {
	data, _ := os.ReadFile(filepath.Join(u.Home, fmt.Sprintf("runs-%s-%d", job, task)))
	return strings.Count(string(data), "\n")
}

// task is what Slurm says about one: raw id, state, restarts.
func task(t *testing.T, job string, number int) (id, state, restarts string) {
	t.Helper()
	for field := range strings.FieldsSeq(ok(t, root, fmt.Sprintf("scontrol -o show job %s_%d", job, number)).Stdout) {
		key, value, _ := strings.Cut(field, "=")
		switch key {
		case "JobId":
			id = value
		case "JobState":
			state = value
		case "Restarts":
			restarts = value
		}
	}
	return id, state, restarts
}

func awaitTask(t *testing.T, job string, number int, want string) {
	t.Helper()
	until(t, fmt.Sprintf("task %s_%d to be %s", job, number, want), 90*time.Second, func() error {
		if _, state, restarts := task(t, job, number); state != want {
			return fmt.Errorf("it is %s, restarts %s", state, restarts)
		}
		return nil
	})
}

// TestARefusedTaskGoesBackAlone: the last task of an array to be split off has the array's id, by which
// `scontrol requeue` means every task, also those that are running and those that are done.
func TestARefusedTaskGoesBackAlone(t *testing.T) {
	const last = 5 // 20 % each: four fit beside the two halves, the fifth by count only
	for _, tc := range []struct{ name, tasks, held string }{
		{"all", "-a 0-5", ""},
		{"limit", "-a 0-5%5", ""},
		{"held sibling", "-a 0-6", "6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			begin(t)
			halves := make([]func(), 2)
			for i := range halves {
				var half string
				half, halves[i] = holding(t, one, "--gres=vgpu:1 --vgpu-mem=50% --vgpu-place=spread")
				slicesOf(t, half)
			}
			job, release := array(t, two, tc.tasks+" --gres=vgpu:1 --vgpu-mem=20%")
			if tc.held != "" {
				ok(t, root, "scontrol hold "+job+"_"+tc.held)
			}
			ok(t, root, "scontrol release "+job+"_0")
			awaitTask(t, job, 0, "COMPLETED")
			ok(t, root, "scontrol release "+job+"_[1-4]")
			for number := 1; number < last; number++ {
				awaitTask(t, job, number, "RUNNING")
				// It is that while its prolog runs; the last one must come after the four.
				id, _, _ := task(t, job, number)
				slicesOf(t, id)
			}
			ok(t, root, fmt.Sprintf("scontrol release %s_%d", job, last))
			awaitRequeue(t, job, last)
			checkUntouched(t, job, last)
			if tc.held != "" {
				if _, state, restarts := task(t, job, 6); state != "PENDING" || restarts != "0" {
					t.Errorf("the held task is %s with %s restarts", state, restarts)
				}
				ok(t, root, "scancel "+job+"_"+tc.held)
			}
			release()
			for number := range last + 1 {
				awaitTask(t, job, number, "COMPLETED")
				if n := runsOf(two, job, number); n != 1 {
					t.Errorf("task %d was started %d times", number, n)
				}
			}
			for _, release := range halves {
				release()
			}
		})
	}
}

func awaitRequeue(t *testing.T, job string, last int) {
	t.Helper()
	until(t, "the last task to be requeued", 60*time.Second, func() error {
		id, state, restarts := task(t, job, last)
		if restarts == "0" {
			return fmt.Errorf("it is %s", state)
		}
		if id != job {
			t.Fatalf("the last task has id %s, not the array's %s: nothing is tried here", id, job)
		}
		return nil
	})
}

// checkUntouched: the tasks before the last one were neither ended nor started again.
func checkUntouched(t *testing.T, job string, last int) {
	t.Helper()
	for number := range last {
		want := "RUNNING"
		if number == 0 {
			want = "COMPLETED"
		}
		if _, state, restarts := task(t, job, number); state != want || restarts != "0" {
			t.Errorf("task %d is %s with %s restarts when the last one was requeued", number, state, restarts)
		}
	}
}

// skipWhereSlurmLostAProlog ends a test where slurmd 22.05 drained a node: now and then it is told to start the batch
// step of a requeued job, but not to run its prolog, and gives up waiting for that after twice MessageTimeout.
func skipWhereSlurmLostAProlog(t *testing.T, node string) {
	t.Helper()
	drained := strings.Contains(run(t, root, "sinfo -h -n "+node+" -o %T").Stdout, "drain")
	said, err := os.ReadFile(c.Home.Path("log", "slurmd-"+node+".log"))
	if !drained || err != nil || !strings.Contains(string(said), "REQUEST_LAUNCH_PROLOG notification failed") {
		return
	}
	ok(t, root, "scontrol update nodename="+node+" state=resume")
	t.Skip("slurmd waited for a prolog that it was not told to run, and drained " + node)
}

// TestAHeterogeneousJobGoesBackAsAWhole: Slurm requeues a component with all others or not at all.
func TestAHeterogeneousJobGoesBackAsAWhole(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	bystander, releaseBystander := holding(t, one, "-p all -w n2 --gres=vgpu:1 --vgpu-mem=1000")
	awaitState(t, bystander, "RUNNING")
	// Slurm 24.11 starts the script while the other component's prolog is still at work: who is done by then stays done.
	job := submit(t, two, "-p all -w n2 --gres=vgpu:1,gpumem:1000 : -p all -w n1 --gres=vgpu:1,gpumem:60000",
		"while [ -z \"$SLURM_RESTART_COUNT\" ]; do sleep 0.1; done; "+seen)
	// Slurm's backfill starts heterogeneous jobs, and sleeps while nothing happens in the cluster.
	stir := func() { run(t, root, "sbatch -p all -o /dev/null --wrap true") }
	component := func(n int, key string) string {
		for field := range strings.FieldsSeq(run(t, root, fmt.Sprintf("scontrol -o show job %s+%d", job, n)).Stdout) {
			if value, found := strings.CutPrefix(field, key+"="); found {
				return value
			}
		}
		return ""
	}
	until(t, "both components to be requeued", 60*time.Second, func() error {
		stir()
		if a, b := component(0, "Restarts"), component(1, "Restarts"); a == "0" || b == "0" {
			return fmt.Errorf("restarts %s and %s, %s and %s", a, b, component(0, "JobState"), component(1, "JobState"))
		}
		return nil
	})
	if got := restarts(t, bystander); got != "0" {
		t.Errorf("another job was restarted %s times", got)
	}
	releaseOne()
	until(t, "the job's end", 90*time.Second, func() error {
		stir()
		skipWhereSlurmLostAProlog(t, "n2")
		if state := component(0, "JobState"); state != "COMPLETED" {
			return fmt.Errorf("%s and %s", state, component(1, "JobState"))
		}
		return nil
	})
	releaseOther()
	releaseBystander()
}

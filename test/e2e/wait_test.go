// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/queue"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// shown is a field of what scontrol says about a job, up to the end of its line.
func shown(t *testing.T, job, key string) string {
	t.Helper()
	for line := range strings.Lines(run(t, root, "scontrol show job "+job).Stdout) {
		if _, after, found := strings.Cut(" "+strings.TrimSpace(line), " "+key+"="); found {
			return after
		}
	}
	return ""
}

// excluded is where a job must not run.
func excluded(t *testing.T, job string) string {
	t.Helper()
	return strings.Fields(shown(t, job, "ExcNodeList") + " ")[0]
}

// awaitWaiting waits until a job was put back because it found no room, and returns the reason that Slurm shows.
func awaitWaiting(t *testing.T, job, times string) (comment string) {
	t.Helper()
	until(t, "job "+job+" to wait for room", 60*time.Second, func() error {
		comment = shown(t, job, "AdminComment")
		if n, now := restarts(t, job), state(t, job); n != times || now != "PENDING" || !strings.HasPrefix(comment, "vgpu: waits: ") {
			return fmt.Errorf("it is %s, restarts %s, %s", now, n, comment)
		}
		return nil
	})
	return comment
}

func tool(node, command string) string {
	return "vgpuctl --config " + c.ConfigPath() + " --node " + node + " " + command
}

func TestAJobWithoutRoomWaits(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	job := submit(t, two, "--gres=vgpu:1 --vgpu-mem=60000", seen)
	if comment := awaitWaiting(t, job, "1"); !strings.Contains(comment, "n1: no GPU has 60000 MiB free: the most is 43771 MiB on GPU 0") {
		t.Errorf("the reason is not told: %s", comment)
	}
	if result := run(t, root, tool("n1", "explain "+job)); !strings.Contains(result.Stdout, "43771") {
		t.Errorf("the reason is not explained: %s", result)
	}
	if result := run(t, two, tool("n1", "status")); !strings.Contains(result.Stdout, "43771") {
		t.Errorf("the node does not show who waits: %s", result)
	}
	// What changes nothing for it does not bring it back.
	batch(t, one, "--gres=vgpu:1 --vgpu-mem=1000", "true")
	if n, now := restarts(t, job), state(t, job); n != "1" || now != "PENDING" {
		t.Errorf("it came back without need: it is %s, restarts %s", now, n)
	}
	releaseOne()
	if out := finish(t, two, job); out != "60000\n" {
		t.Errorf("when there was room it saw: %s", out)
	}
	if n := restarts(t, job); n != "1" {
		t.Errorf("it came %s times", n)
	}
	until(t, "the second run in AdminComment", 60*time.Second, func() error {
		comment := account(t, job, "AdminComment")
		if !strings.Contains(comment, `"mem_mib":60000`) || strings.Contains(comment, "waits") {
			return fmt.Errorf("%s", comment)
		}
		return nil
	})
	releaseOther()
}

func TestAnotherNodeIsUsed(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	job := submit(t, two, "-p all --gres=vgpu:1 --vgpu-mem=60000", "echo $SLURMD_NODENAME; "+seen)
	if out := finish(t, two, job); out != "n2\n60000\n" {
		t.Errorf("it wrote: %s", out)
	}
	if list := excluded(t, job); list != "n1" {
		t.Errorf("it excludes %s", list)
	}
	// Where that one is excluded by the user, there is none, and what he excluded stays so.
	job = submit(t, two, "-p all -x n2 --gres=vgpu:1 --vgpu-mem=60000", "echo $SLURMD_NODENAME")
	awaitWaiting(t, job, "1")
	if list := excluded(t, job); list != "n2" {
		t.Errorf("it excludes %s", list)
	}
	releaseOne()
	if out := finish(t, two, job); out != "n1\n" || excluded(t, job) != "n2" {
		t.Errorf("it wrote %s and excludes %s", out, excluded(t, job))
	}
	releaseOther()
}

// TestAJobIsPutBackElsewhere: it found no room here, runs on another node, and is put back when that one is drained. It comes here.
func TestAJobIsPutBackElsewhere(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	gate := c.Home.Path("home", two.Name, t.Name())
	job := submit(t, two, "-p all --requeue --gres=vgpu:1 --vgpu-mem=60000", "echo $SLURMD_NODENAME; [ $SLURMD_NODENAME = n1 ] || until [ -e "+gate+" ]; do sleep 0.1; done")
	holdsOn(t, "n2", job)
	awaitState(t, job, "RUNNING")
	releaseOne()
	releaseOther()
	spool := rundir.Spool(c.Home.Path("vgpu-spool", "n1"))
	until(t, "job "+job+" to be seen elsewhere", 30*time.Second, func() error {
		jobs, err := queue.Read(spool)
		if err != nil || len(jobs) != 1 || !jobs[0].IsAway() || len(stateSlices(t)) != 0 {
			return fmt.Errorf("on the list of n1 are %+v, %v", jobs, err)
		}
		return nil
	})
	if list := excluded(t, job); list != "n1" {
		t.Errorf("it excludes %s", list)
	}
	ok(t, root, "scontrol update nodename=n2 state=drain reason=test")
	t.Cleanup(func() { run(t, root, "scontrol update nodename=n2 state=resume") })
	ok(t, root, "scontrol requeue "+job)
	awaitState(t, job, "PENDING")
	until(t, "a start here", 60*time.Second, func() error {
		jobs, err := queue.Read(spool)
		if len(jobs) == 1 && jobs[0].IsAway() {
			jobs[0].Away = jobs[0].Away.Add(-queue.AwayUnasked) // a minute later
			err = queue.Write(spool, jobs)
		}
		ok(t, root, tool("n1", "sweep")) // as by vgpud
		if now := state(t, job); now == "PENDING" || err != nil {
			return fmt.Errorf("it is %s, on the list of n1 are %+v, %v", now, jobs, err)
		}
		return nil
	})
	if out := finish(t, two, job); !strings.HasSuffix(out, "n1\n") || excluded(t, job) != "(null)" {
		t.Errorf("it wrote %s and excludes %s", out, excluded(t, job))
	}
}

// TestANodeIsTriedAgain: both nodes turned the job away; the first one to have room gets it.
func TestANodeIsTriedAgain(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	var release [2]func()
	for i := range release {
		var job string
		job, release[i] = holding(t, one, "-p all -w n2 --gres=vgpu:1 --vgpu-mem=100000 --vgpu-place=spread")
		awaitState(t, job, "RUNNING")
	}
	job := submit(t, two, "-p all --gres=vgpu:1 --vgpu-mem=60000", "echo $SLURMD_NODENAME")
	awaitWaiting(t, job, "2")
	releaseOne()
	if out := finish(t, two, job); out != "n1\n" {
		t.Errorf("it wrote: %s", out)
	}
	for _, open := range append(release[:], releaseOther) {
		open()
	}
}

func TestWhoHasWaitedLongestGoesFirst(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	large := submit(t, two, "--gres=vgpu:1 --vgpu-mem=80000 --vgpu-cores=60", seen)
	awaitWaiting(t, large, "1")
	// One GPU is kept for it; what ends before it could begin may use that, what runs longer and has no room beside it may not.
	beside, release := holding(t, one, "-t 9 --gres=vgpu:1 --vgpu-mem=43000 --vgpu-cores=50")
	slicesOf(t, beside)
	small := submit(t, two, "-t 9 --gres=vgpu:1 --vgpu-mem=40000 --vgpu-cores=50", seen)
	if comment := awaitWaiting(t, small, "1"); !strings.Contains(comment, "is kept for job "+large+", which has waited longer") {
		t.Errorf("it waits for something else: %s", comment)
	}
	short := batch(t, one, "-t 1 --gres=vgpu:1 --vgpu-mem=40000", seen)
	if short != "40000\n" {
		t.Errorf("a short job saw %s", short)
	}
	releaseOne()
	releaseOther()
	if out := finish(t, two, large); out != "80000\n" {
		t.Errorf("the large one saw %s", out)
	}
	if out := finish(t, two, small); out != "40000\n" {
		t.Errorf("the small one saw %s", out)
	}
	if n := restarts(t, large); n != "1" {
		t.Errorf("the large one came %s times", n)
	}
	release()
}

// Two small slices and two waiting jobs keep no GPU from others that fit beside them.
func TestWhatFitsBesideAWaitingJobBegins(t *testing.T) {
	begin(t)
	a, releaseOne := holding(t, one, "-t 60 --gres=vgpu:1 --vgpu-mem=100M --vgpu-cores=60 --vgpu-place=spread")
	b, releaseOther := holding(t, one, "-t 60 --gres=vgpu:1 --vgpu-mem=100M --vgpu-cores=60 --vgpu-place=spread")
	slicesOf(t, a)
	slicesOf(t, b)
	var waiting []string
	for range 2 {
		job := submit(t, one, "-t 60 --gres=vgpu:1 --vgpu-mem=100M --vgpu-cores=41", seen)
		awaitWaiting(t, job, "1")
		waiting = append(waiting, job)
	}
	if out := ok(t, two, "srun -t 60 --gres=vgpu:1 --vgpu-mem=1000 "+seen).Stdout; out != "1000\n" {
		t.Errorf("the other user saw %s", out)
	}
	// What would have no room beside them waits: they are not held up.
	if said := run(t, two, "srun -t 60 --gres=vgpu:1 --vgpu-mem=143700 true"); said.Code == 0 || !strings.Contains(said.Stderr, "is kept for job "+waiting[0]) && !strings.Contains(said.Stderr, "MiB free") {
		t.Errorf("a large one: %s", said)
	}
	releaseOne()
	releaseOther()
	for _, job := range waiting {
		if out := finish(t, one, job); out != "100\n" {
			t.Errorf("a waiting one saw %s", out)
		}
	}
}

// TestRoomThatNobodyToldOf: the epilog that made it could not reach the controller, or died. The sweep tells.
func TestRoomThatNobodyToldOf(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	job := submit(t, two, "--gres=vgpu:1 --vgpu-mem=60000", seen)
	awaitWaiting(t, job, "1")
	silence(t, func() {
		releaseOne()
		until(t, "one slice", 30*time.Second, func() error {
			if held := stateSlices(t); len(held) != 1 {
				return fmt.Errorf("there are %d", len(held))
			}
			return nil
		})
		until(t, "no job in its epilog", 30*time.Second, func() error {
			if now := run(t, root, "squeue -h -t CG -o %A").Stdout; now != "" {
				return fmt.Errorf("%s is", now)
			}
			return nil
		})
	})
	if now := state(t, job); now != "PENDING" {
		t.Fatalf("nothing is tried here: it is %s", now)
	}
	ok(t, root, tool("n1", "sweep"))
	if out := finish(t, two, job); out != "60000\n" {
		t.Errorf("it saw: %s", out)
	}
	releaseOther()
}

// TestAWaitingJobOutlivesSlurmctld: when it may start, and why it waits, is part of the job.
func TestAWaitingJobOutlivesSlurmctld(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	job := submit(t, two, "--gres=vgpu:1 --vgpu-mem=60000", seen)
	before := awaitWaiting(t, job, "1")
	if err := c.StopDaemon("slurmctld", syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := c.StartDaemon("slurmctld"); err != nil {
		t.Fatal(err)
	}
	if after := awaitWaiting(t, job, "1"); after != before {
		t.Errorf("it waited for %s, and now for %s", before, after)
	}
	// Before slurmctld has heard of the job from its database it changes nothing of it, and an epilog has only so much time.
	until(t, "a job that can be changed", 60*time.Second, func() error {
		if result := run(t, root, "scontrol update JobId="+job+" Comment=here"); result.Code != 0 {
			return fmt.Errorf("%s", result)
		}
		return nil
	})
	releaseOne()
	if out := finish(t, two, job); out != "60000\n" || restarts(t, job) != "1" {
		t.Errorf("it came %s times and saw: %s", restarts(t, job), out)
	}
	releaseOther()
}

// silence has the node's programs find no squeue while something happens.
func silence(t *testing.T, meanwhile func()) {
	t.Helper()
	path := c.ConfigPath()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	mute := strings.Replace(string(text), "  squeue: ", "  squeue: /nowhere", 1)
	if mute == string(text) {
		t.Fatalf("no squeue in %s", text)
	}
	if err := os.WriteFile(path, []byte(mute), 0o644); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := c.WriteConfig(); err != nil {
			t.Error(err)
		}
	}()
	meanwhile()
}

// TestJobsThatFitTogetherByCountOnly are all done in the end: of five with 40 % of a GPU's time four fit on two GPUs, of
// three with 60 % of the memory two.
func TestJobsThatFitTogetherByCountOnly(t *testing.T) {
	begin(t)
	cores := submit(t, one, "-a 1-5 --gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=40", "sleep 2")
	awaitTasks(t, cores, 5)
	mem := submit(t, two, "-a 1-3 --gres=vgpu:1 --vgpu-mem=60%", "sleep 2")
	awaitTasks(t, mem, 3)
}

func awaitTasks(t *testing.T, job string, count int) {
	t.Helper()
	for number := 1; number <= count; number++ {
		awaitTask(t, job, number, "COMPLETED")
		if _, _, n := task(t, job, number); n != "0" && n != "1" {
			t.Errorf("task %d came back %s times", number, n)
		}
	}
}

func TestAnInteractiveJobIsToldWhatFits(t *testing.T) {
	begin(t)
	releaseOne, releaseOther := fragment(t)
	for _, line := range []string{"srun -p all -w n1 --gres=vgpu:1 --vgpu-mem=60000 true", "salloc -p all -w n1 --gres=vgpu:1 --vgpu-mem=60000 srun true"} {
		result := run(t, two, line)
		if result.Code == 0 || !strings.Contains(result.Stderr, "the most is 43771 MiB on GPU 0; a batch job would wait, --exclude=n1 tries other nodes, and --vgpu-mem=43771 fits here now") {
			t.Errorf("%s", result)
		}
	}
	if out := ok(t, two, "srun -p all --exclude=n1 --gres=vgpu:1 --vgpu-mem=60000 "+seen).Stdout; out != "60000\n" {
		t.Errorf("on another node it saw %s", out)
	}
	releaseOne()
	releaseOther()
}

// TestAJobThatFitsByCountPreempts: for Slurm there is nothing in its way. One of the two that are leaves, as slurm.conf says.
func TestAJobThatFitsByCountPreempts(t *testing.T) {
	begin(t)
	var low [2]string
	var release [2]func()
	for i := range low {
		low[i], release[i] = holding(t, one, "--requeue --gres=vgpu:1 --vgpu-mem=50% --vgpu-place=spread")
		slicesOf(t, low[i])
	}
	peer := submit(t, two, "--gres=vgpu:1 --vgpu-mem=75%", "true")
	awaitWaiting(t, peer, "1")
	if a, b := restarts(t, low[0]), restarts(t, low[1]); a != "0" || b != "0" {
		t.Errorf("a job of the same rank preempted: restarts %s and %s", a, b)
	}
	ok(t, root, "scancel "+peer)
	if out := batch(t, two, "-p high --gres=vgpu:1 --vgpu-mem=75%", seen); out != "107828\n" {
		t.Errorf("it saw %s", out)
	}
	if a, b := restarts(t, low[0]), restarts(t, low[1]); a+b != "10" && a+b != "01" {
		t.Errorf("one of two was to leave: restarts %s and %s", a, b)
	}
	for i := range low {
		release[i]()
		finish(t, one, low[i])
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"
)

// Slurm plans with the shards that it has counted, whatever is done to jobs: root's changes keep to them, and who moves a pending
// job to where it would have to be counted otherwise is told.
func TestChangesKeepToShards(t *testing.T) {
	needShards(t)
	begin(t)
	job, release := holding(t, one, "-p shard --gres=vgpu:1 --vgpu-mem=60000")
	holdsOn(t, "h1", job)
	set := func(size string) string {
		return strings.Replace(tool("h1", "set "+job+" --mem "+size), c.ConfigPath(), c.ConfigOf("h1"), 1)
	}
	if result := run(t, root, set("60001")); result.Code != 1 || !strings.Contains(result.Stderr, "the most is 60000 MiB or 41 % without --force") {
		t.Errorf("more than its shards: %s", result)
	}
	ok(t, root, set("50000"))
	ok(t, root, set("60000"))
	if got := onShards(t); got != [gpus]int{60000} {
		t.Errorf("%v MiB are given out", got)
	}

	for from, to := range map[string]string{"vgpu": "shard", "shard": "vgpu"} {
		before, _ := os.ReadFile(c.Home.Path("log", "slurmctld.log"))
		moved := submit(t, two, "-H -p "+from+" --gres=vgpu:1,gpumem:2000", seen)
		result := run(t, two, "scontrol update JobId="+moved+" Partition="+to)
		log, _ := os.ReadFile(c.Home.Path("log", "slurmctld.log"))
		if said := result.Stderr + string(log[len(before):]); result.Code == 0 || !strings.Contains(said, "vgpu: Partition="+to+": the job has vgpu, which is counted with") {
			t.Errorf("from %s to %s: %s", from, to, result)
		}
		ok(t, two, "scontrol release "+moved)
		if out := finish(t, two, moved); out != "2000\n" {
			t.Errorf("it stayed in %s and sees %q", from, out)
		}
	}
	release()
	finish(t, one, job)
}

// A job that is in the way of another gives its shards and its slice back before that one begins.
func TestPreemptionOfShards(t *testing.T) {
	needShards(t)
	begin(t)
	ok(t, root, "scontrol create PartitionName=urgent Nodes=h1 MaxTime=60 DefaultTime=5 PriorityTier=10")
	t.Cleanup(func() { ok(t, root, "scontrol delete PartitionName=urgent") })
	low, releaseLow := holding(t, one, "--requeue -p shard --gres=shard:100000")
	beside, releaseBeside := holding(t, one, "--requeue -p shard --gres=shard:100000")
	lowOn, besideOn := holdsOn(t, "h1", low), holdsOn(t, "h1", beside)
	if lowOn[0] == besideOn[0] {
		t.Fatalf("two slices of 100000 MiB stand on %v and %v", lowOn, besideOn)
	}
	ok(t, root, "scontrol suspend "+low)
	if got := onShards(t); got != [gpus]int{100000, 100000} {
		t.Errorf("with a suspended job %v MiB are given out", got)
	}
	pending(t, submit(t, two, "-p shard --gres=shard:50000", "true"))
	ok(t, root, "scontrol resume "+low)
	if out := batch(t, two, "-p urgent --gres=shard:100000", seen+"; vgpu-fill"); !strings.HasPrefix(out, "100000\n") {
		t.Errorf("it sees %s", out)
	} else {
		wantLimit(t, out, 100000)
	}
	releaseLow()
	releaseBeside()
	for _, job := range []string{low, beside} {
		if out := finish(t, one, job); !strings.HasSuffix(out, "released\n") {
			t.Errorf("job %s came back %s times and wrote %q", job, restarts(t, job), out)
		}
	}
	if sum := restarts(t, low) + restarts(t, beside); sum != "01" && sum != "10" {
		t.Errorf("they came back %s times", sum)
	}
}

// A site moves from counts to shards, as docs/whole-gpus.md has it: a job that was submitted before has no shards. Counted anew it runs; else it says why not.
func TestPendingJobsAreCountedAnew(t *testing.T) {
	needShards(t)
	begin(t)
	script := c.Home.Path("etc", "job_submit.lua")
	now, err := os.ReadFile(script)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Now()
	write := func(text []byte) { // slurmctld reads a script again that is newer, by seconds, than the one that it has read
		at = at.Add(10 * time.Second)
		if os.WriteFile(script, text, 0o644) != nil || os.Chtimes(script, at, at) != nil {
			t.Fatal("the script of submissions cannot be written")
		}
	}
	before := strings.Replace(string(now), `vgpu.shards = function(job) return job.partition == "shard" end`, "vgpu.shards = false", 1)
	t.Cleanup(func() { write(now) })
	write([]byte(before))
	left, moved := submit(t, one, "-H -p shard --gres=vgpu:1,gpumem:2000", seen), submit(t, two, "-H -p shard --gres=vgpu:1,gpumem:2000", seen)
	several := submit(t, two, "-H -p shard --gres=vgpu:2,gpumem:2000", seen)
	write(now)

	anew := `squeue -h -t PD -o '%A %b' -j JOB | while read job gres; do
		case $gres in *vgpu*) scontrol update jobid=$job gres=$gres excnodelist= starttime=now;; esac
	done`
	ok(t, root, strings.Replace(anew, "JOB", moved, 1))
	ok(t, one, "scontrol release "+left)
	ok(t, two, "scontrol release "+moved)
	awaitState(t, left, "FAILED")
	if out := output(t, one, left); !strings.Contains(out, "no gres/shard, so that Slurm picked no GPU for it") {
		t.Errorf("a job that was not counted anew says %q", out)
	}
	if out := finish(t, two, moved); out != "2000\n" {
		t.Errorf("a job that was counted anew sees %q", out)
	}
	wantTRES(t, moved, "AllocTRES", "gres/vgpu=1", "gres/gpumem=2000", "gres/shard=2000")
	if result := run(t, root, strings.Replace(anew, "JOB", several, 1)); result.Code == 0 {
		t.Errorf("two slices on a node: %s", result)
	}
	ok(t, two, "scancel "+several)
}

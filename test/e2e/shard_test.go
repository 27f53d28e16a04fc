// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// On the node h1 Slurm picks the GPUs, and ConstrainDevices is on wherever these tests can have it.
func needShards(t *testing.T) {
	t.Helper()
	needStrict(t)
	if !c.Shards {
		t.Skipf("%s: shards and whole GPUs are kept apart from 23.11.5 on", strings.TrimSpace(run(t, root, "slurmctld -V").Stdout))
	}
	t.Logf("ConstrainDevices: %v", c.Constrains())
}

// onShards are the MiB that the state file and Slurm have given out of each GPU of h1, which must be the same.
func onShards(t *testing.T) (mib [gpus]int) {
	t.Helper()
	held, err := c.Slices("h1")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range held {
		mib[s.Minor] += int(s.MemMiB)
	}
	shown := ok(t, root, "scontrol -d -o show node h1").Stdout
	used := regexp.MustCompile(`GresUsed=gpu:h200:\d\(IDX:(\S*?)\),shard:h200:\d+\((\d+|-)/143771,(\d+|-)/143771\)`).FindStringSubmatch(shown)
	if used == nil {
		t.Fatalf("scontrol does not say which shards are given out: %s", shown)
	}
	var slurms [gpus]int
	for i := range slurms {
		fmt.Sscan(used[2+i], &slurms[i])
		if strings.Contains(used[1], fmt.Sprint(i)) || used[1] == "0-1" {
			slurms[i] += 143771
		}
	}
	if slurms != mib {
		t.Errorf("Slurm has given out %v MiB, the node %v", slurms, mib)
	}
	return mib
}

// pending waits until Slurm itself has no room for a job.
func pending(t *testing.T, job string) {
	t.Helper()
	until(t, "job "+job+" to wait for resources", 30*time.Second, func() error {
		if why := strings.TrimSpace(run(t, root, "squeue -h -o '%T %r' -j "+job).Stdout); why != "PENDING Resources" {
			return fmt.Errorf("it is %s", why)
		}
		return nil
	})
}

// whatOpens is which GPU a job can open and what it sees of it.
func whatOpens() string { return openNodes() + "; " + seen + "; " }

func TestSlurmPicksTheGPUByShards(t *testing.T) {
	needShards(t)
	begin(t)
	first, releaseFirst := holding(t, one, "-p shard --gres=vgpu:1 --vgpu-mem=60%")
	awaitState(t, first, "RUNNING")
	gate := openDir(t) + "/gate"
	script := whatOpens() + "echo cuda=$CUDA_VISIBLE_DEVICES jobs=$SLURM_JOB_GPUS; vgpu-fill; while [ ! -e " + gate + " ]; do sleep 0.1; done"
	second := submit(t, two, "-p shard --gres=vgpu:1,gpumem:86262", script)
	firstOn, secondOn := holdsOn(t, "h1", first), holdsOn(t, "h1", second)
	if firstOn[0] == secondOn[0] {
		t.Errorf("two slices of 60 %% stand on %v and %v", firstOn, secondOn)
	}
	third := submit(t, one, "-p shard --gres=shard:86262", seen)
	pending(t, third)
	if got := onShards(t); got != [gpus]int{86262, 86262} {
		t.Errorf("two slices of 60 %% are %v MiB", got)
	}
	releaseFirst()
	if out := finish(t, one, third); out != "86262\n" || restarts(t, third) != "0" {
		t.Errorf("the third came back %s times and saw %s", restarts(t, third), out)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := finish(t, two, second)
	visible := "0" // of those that are not masked
	if c.Isolation != "strict" {
		visible = secondOn[0]
	}
	if !strings.HasPrefix(out, "open 1\n86262\ncuda="+visible+" jobs=1\n") {
		t.Errorf("the second saw:\n%s", out)
	}
	wantLimit(t, out, 86262)
	wantTRES(t, second, "AllocTRES", "gres/vgpu=1", "gres/gpumem=86262", "gres/shard=86262")
	if d := awaitUsage(t, second, 60*time.Second).VGPU.Nodes["h1"]; len(d) != 1 || d[0].MemMiB != 86262 || d[0].PeakMiB < 80000 {
		t.Errorf("its use: %+v", d)
	}
}

// TestSharesOfTimeAreShards: two shares of 60 % of little memory cannot be of one GPU, and Slurm knows it.
func TestSharesOfTimeAreShards(t *testing.T) {
	needShards(t)
	begin(t)
	busy, line := busyIn(t, one, "shards")
	first := submit(t, one, "-p shard --gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=60", line)
	second, _ := holding(t, two, "-p shard --gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=60")
	if a, b := holdsOn(t, "h1", first), holdsOn(t, "h1", second); a[0] == b[0] {
		t.Errorf("two shares of 60 %% stand on %v and %v", a, b)
	}
	pending(t, submit(t, two, "-p shard --gres=vgpu:1,gpumem:10,gpucores:60", "true"))
	wantTRES(t, first, "AllocTRES", "gres/gpumem=3000", "gres/gpucores=60", "gres/shard=86262")
	busy.awaitShare(1, 60)
	busy.end()
	finish(t, one, first)
}

func TestAWholeGPUBesideShards(t *testing.T) {
	needShards(t)
	begin(t)
	slice, releaseSlice := holding(t, one, "-p shard --gres=vgpu:1 --vgpu-mem=3000")
	shared := holdsOn(t, "h1", slice)
	out := batch(t, two, "-p shard --gpus=1", whatOpens()+"echo $SLURM_JOB_GPUS; srun "+sight+"; vgpu-fill")
	if !strings.HasPrefix(out, "open 1\n143771\n1\n0 cuda=0 gpus=1 on=1 lists=1 loaded=0\n") {
		t.Errorf("beside a slice of %s a whole GPU is:\n%s", shared[0], out)
	}
	whole, releaseWhole := holding(t, two, "-p shard --gres=gpu:1")
	if held := holdsOn(t, "h1", whole); held[0] == shared[0] {
		t.Errorf("a whole GPU has a slice on it: %v", held)
	}
	if got := onShards(t); got != [gpus]int{3000, 143771} {
		t.Errorf("a slice and a whole GPU are %v MiB", got)
	}
	if out := batch(t, one, "-p shard --gres=vgpu:1 --vgpu-mem=2000", whatOpens()); out != "open 0\n2000\n" {
		t.Errorf("another slice beside a whole GPU sees %q", out)
	}
	if out := batch(t, one, "-p shard", openNodes()); out != "" {
		t.Errorf("a job without GPUs sees %q", out)
	}
	next := submit(t, two, "-p shard --gpus-per-node=1", whatOpens())
	pending(t, next)
	releaseSlice()
	if out := finish(t, two, next); out != "open 0\n143771\n" || restarts(t, next) != "0" {
		t.Errorf("it came back %s times and saw %q", restarts(t, next), out)
	}
	releaseWhole()
	if got := ok(t, one, "srun -p shard --gres=gpu:h200:2 "+sight).Stdout; got != "0 cuda=0,1 gpus=0,1 on=2 lists=2 loaded=0\n" {
		t.Errorf("both GPUs: %s", got)
	}
	// With ConstrainDevices a task sees its own GPU alone, and counts from 0.
	cuda := "echo $CUDA_VISIBLE_DEVICES $(nvidia-smi -i $CUDA_VISIBLE_DEVICES --query-gpu=uuid --format=csv,noheader)"
	tasks := lines(ok(t, one, "srun -p shard -n2 --gpus-per-task=1 sh -c '"+cuda+"'").Stdout)
	if len(tasks) != 2 || strings.Fields(tasks[0])[1] == strings.Fields(tasks[1])[1] {
		t.Errorf("each task has its GPU: %q", tasks)
	}
}

func TestStepsOfAJobWithShards(t *testing.T) {
	needShards(t)
	begin(t)
	out := batch(t, one, "-p shard -n2 --gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=40", `
		echo all; srun -n1 `+seen+`
		echo option; srun -n1 --vgpu-mem=1000 `+seen+`
		echo counted; srun -n1 --gres=gpumem:1100 `+seen+`
		echo shards; srun -n1 --gres=shard:1200 sh -c '`+seen+`; vgpu-fill'
		echo cores; srun -n1 --gres=vgpu:1,gpucores:20 `+seen+`
		echo none; srun -n1 --gres=none sh -c '`+openNodes()+`'
		echo more; srun -n1 --gres=gpumem:4000 true 2>/dev/null && echo it ran
		echo bare; env -u SLURM_SHARDS_ON_NODE srun -n1 --gres=gpumem:1000 true 2>&1 | grep -o 'vgpu: --gres=vgpu:1,gpumem:1000: the step has no shards'
		echo parallel
		for i in 1 2; do srun -n1 --exact --gres=shard:1500 sh -c '`+seen+`; until [ -e end ]; do sleep 0.1; done' > mib.$i & done
		until [ "$(cat mib.? 2>/dev/null | wc -l)" = 2 ]; do sleep 0.1; done
		touch end; wait; cat mib.?; rm end mib.?`)
	out = retried.ReplaceAllString(out, "")
	wantLimit(t, out, 1200)
	out = regexp.MustCompile(`(?m)^(vgpu: GPU memory limit|CUDA_ERROR|NVIDIA H200: ).*\n`).ReplaceAllString(out, "")
	if out != "all\n3000\noption\n1000\ncounted\n1100\nshards\n1200\ncores\n3000\nnone\nmore\nbare\nvgpu: --gres=vgpu:1,gpumem:1000: the step has no shards\nparallel\n1500\n1500\n" {
		t.Errorf("steps see:\n%s", out)
	}
}

func TestShardsOutliveSlurmsDaemons(t *testing.T) {
	needShards(t)
	begin(t)
	killable(t)
	slice, releaseSlice := holding(t, one, "-p shard --gres=vgpu:1 --vgpu-mem=100000")
	holdsOn(t, "h1", slice)
	whole, releaseWhole := holding(t, two, "-p shard --gpus=1")
	holdsOn(t, "h1", whole)
	before := onShards(t)
	saved(t, whole) // what slurmctld has not saved is lost with it
	for _, name := range []string{"h1", "slurmctld"} {
		if err := c.StopDaemon(name, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"slurmctld", "h1"} {
		if err := c.StartDaemon(name); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "slurmctld and h1", 60*time.Second, func() error {
		if said := run(t, root, "sinfo -h -p shard -o %T"); strings.TrimSpace(said.Stdout) != "mixed" {
			return fmt.Errorf("%s", said)
		}
		return nil
	})
	if after := onShards(t); after != before || after != [gpus]int{100000, 143771} {
		t.Errorf("%v MiB were given out before, %v after", before, after)
	}
	small := batch(t, one, "-p shard --gres=vgpu:1 --vgpu-mem=40000", whatOpens())
	if small != "open 0\n40000\n" {
		t.Errorf("a slice beside them sees %q", small)
	}
	large := submit(t, two, "-p shard --gres=vgpu:1 --vgpu-mem=50000", seen)
	pending(t, large)
	releaseSlice()
	finish(t, one, slice)
	if out := finish(t, two, large); out != "50000\n" || restarts(t, large) != "0" {
		t.Errorf("it came back %s times and saw %s", restarts(t, large), out)
	}
	releaseWhole()
	finish(t, two, whole)
	if after := onShards(t); after != [gpus]int{} {
		t.Errorf("%v MiB are left", after)
	}
}

func TestWhatShardsCannotDo(t *testing.T) {
	needShards(t)
	begin(t)
	for options, says := range map[string]string{
		"--gres=vgpu:2 --vgpu-mem=3000":                  "--gres=vgpu:2: here Slurm gives a job parts of one GPU on each node",
		"--gres=gpu:1,vgpu:1":                            "ask for one of the two",
		"--gpus=1 --vgpu-mem=3000":                       "this asks for whole GPUs, and --vgpu-mem=3000 is of slices",
		"--gres=shard:3000 --vgpu-place=spread":          "--vgpu-place=spread: here Slurm picks the GPU",
		"--gres=vgpu:1 --vgpu-uuid=GPU-1b2c3d4e":         "--vgpu-uuid=GPU-1b2c3d4e: here Slurm picks the GPU",
		"--gres=shard:143772":                            "no GPU has 143772 MiB",
		"--gres=vgpu:1,gpumem:3000,shard:10":             "leave shard out",
		"-n2 --tres-per-task=gres/shard:3000":            "shard is counted per node only: use --gres=shard:N",
		"--exclusive --gres=vgpu:1 --vgpu-mem=3000":      "--exclusive: ",
		"--gres=vgpu:1 --vgpu-mem=3000 --vgpu-gpu=other": "this cluster has no such GPU",
	} {
		if result := run(t, one, "sbatch -p shard "+options+" --wrap true"); result.Code == 0 || !strings.Contains(result.Stderr, "vgpu: ") || !strings.Contains(result.Stderr, says) {
			t.Errorf("want %q: %s", says, result)
		}
	}
	if result := run(t, one, "VGPU_UUID=GPU-1b2c3d4e sbatch -p shard --gres=vgpu:1 --vgpu-mem=3000 --wrap true"); result.Code == 0 || !strings.Contains(result.Stderr, "vgpu: VGPU_UUID: here Slurm picks the GPU: unset it") {
		t.Errorf("a UUID by default: %s", result)
	}
	said := run(t, root, "vgpu-gres --config "+c.ConfigOf("h1")+" --node h1 check -v").Stdout
	if !strings.Contains(said, "shards: ok: Slurm picks the GPUs of node h1") {
		t.Errorf("check: %s", said)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// sight is what a task sees of GPUs: its number, the variables that Slurm sets, the GPUs that the driver lists, and
// whether anything of slurm-vgpu is loaded.
const sight = `sh -c 'echo $SLURM_PROCID cuda=$CUDA_VISIBLE_DEVICES gpus=$SLURM_STEP_GPUS on=$SLURM_GPUS_ON_NODE lists=$(nvidia-smi -L | grep -c ^GPU) loaded=$(grep -c slurm-vgpu /proc/self/maps)'`

// lines are those of an output, sorted: tasks write in any order.
func lines(text string) []string {
	return slices.Sorted(slices.Values(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })))
}

// open are the device nodes that a job can open.
func openNodes() string {
	nodes := c.Home.Path("sim", "simgpu.d", "nvidia")
	return "for i in 0 1; do if (: < " + nodes + "$i) 2>/dev/null; then echo open $i; fi; done"
}

// holdsOn waits until a job holds GPUs of a node, and returns their UUIDs.
func holdsOn(t *testing.T, node, job string) (uuids []string) {
	t.Helper()
	until(t, "GPUs of job "+job, 60*time.Second, func() error {
		text, err := os.ReadFile(c.Home.Path("run", node, "jobs", job, "grant.json"))
		uuids = nil
		for _, part := range strings.Split(string(text), `"device": "`)[1:] {
			uuid, _, _ := strings.Cut(part, `"`)
			uuids = append(uuids, uuid)
		}
		if err != nil || len(uuids) == 0 {
			return fmt.Errorf("it is %s: %v", state(t, job), err)
		}
		return nil
	})
	return uuids
}

// wantNoLimit checks that vgpu-fill got all that was free when it began. The nodes' simulated GPUs are the same, and programs that
// were killed in other tests may have left something there.
func wantNoLimit(t *testing.T, out string) {
	t.Helper()
	var free int
	if _, after, found := strings.Cut(out, "total 143771 MiB, free "); found {
		fmt.Sscan(after, &free)
	}
	if got := took(t, out); free == 0 || got < free-128 {
		t.Errorf("it took %d MiB of %d that were free:\n%s", got, free, out)
	}
}

func TestEveryWayToAskForWholeGPUs(t *testing.T) {
	needStrict(t)
	begin(t)
	both := "0 cuda=0,1 gpus=0,1 on=2 lists=2 loaded=0"
	for options, want := range map[string][]string{
		"":                       {"0 cuda= gpus= on= lists=0 loaded=0"},
		"--gres=gpu:1":           {"0 cuda=0 gpus=0 on=1 lists=1 loaded=0"},
		"--gres=gpu:h200:2":      {both},
		"--gpus=1":               {"0 cuda=0 gpus=0 on=1 lists=1 loaded=0"},
		"-G h200:2":              {both},
		"--gpus-per-node=2":      {both},
		"-n2 --gpus-per-task=1":  {"0 cuda=0 gpus=0 on=2 lists=2 loaded=0", "1 cuda=1 gpus=1 on=2 lists=2 loaded=0"},
		"-n2 --ntasks-per-gpu=1": {"0 cuda=0 gpus=0 on=2 lists=2 loaded=0", "1 cuda=1 gpus=1 on=2 lists=2 loaded=0"},
		"--gpus-per-socket=1 --sockets-per-node=1": {"0 cuda=0 gpus=0 on=1 lists=1 loaded=0"},
		"--exclusive --gpus=2":                     {both},
	} {
		if got := lines(ok(t, one, "srun -p whole "+options+" "+sight).Stdout); !slices.Equal(got, want) {
			t.Errorf("%s: want %q, got %q", options, want, got)
		}
	}
	// A node of one's own brings all that Slurm counts there; who asked for slices has these alone.
	for options, want := range map[string]string{"": "143771\n143771\n", "--gres=vgpu:1 --vgpu-mem=3000": "3000\n", "--gres=gpumem:2000": "2000\n"} {
		if out := batch(t, one, "-p whole --exclusive "+options, seen); out != want {
			t.Errorf("--exclusive %s: want %q, got %q", options, want, out)
		}
	}
	job := submit(t, one, "-p whole --gpus=2", "echo cuda=$CUDA_VISIBLE_DEVICES gpus=$SLURM_JOB_GPUS on=$SLURM_GPUS_ON_NODE; "+seen+"; vgpu-fill")
	if out := finish(t, one, job); !strings.HasPrefix(out, "cuda=0,1 gpus=0,1 on=2\n143771\n143771\n") {
		t.Errorf("a batch script with both GPUs:\n%s", out)
	} else {
		wantNoLimit(t, out)
	}
	wantTRES(t, job, "AllocTRES", "gres/gpu=2", "gres/gpucores=200")
	if comment := account(t, job, "AdminComment"); comment != "" {
		t.Errorf("use that nobody counted is reported: %s", comment)
	}
}

func TestWholeGPUsAndSlicesAreNotOfOneJob(t *testing.T) {
	begin(t)
	for line, says := range map[string]string{
		"sbatch -p vgpu --gpus=1 --wrap true":                       "--gpus=1: here GPUs are given out as slices: use --gres=vgpu:N, with --vgpu-mem=100% --vgpu-cores=100 for GPUs to oneself",
		"sbatch -p vgpu --gres=vgpu:1 --gpus=1 --wrap true":         "--gpus=1: this asks for whole GPUs, and vgpu is of slices: leave it out",
		"sbatch -p vgpu --gres=vgpu:1 --cpus-per-gpu=1 --wrap true": "--cpus-per-gpu=1: this is of whole GPUs, and vgpu is of slices: use --cpus-per-task",
		"srun -p vgpu --gres=vgpu:1 --mem-per-gpu=2G true":          "this is of whole GPUs, and vgpu is of slices: use --mem, or --vgpu-mem for memory of the GPU",
		"salloc -p vgpu --gres=vgpu:1 --ntasks-per-gpu=1 true":      "--ntasks-per-gpu=1: this is of whole GPUs, and vgpu is of slices: use --ntasks-per-node",
		"sbatch -p vgpu --gres=vpgu:1 --wrap true":                  "--gres=vpgu:1: there is no such GRES: did you mean vgpu:1?",
		"sbatch -p whole --gres=gpu:1,vgpu:1 --wrap true":           "--gres=gpu:1,vgpu:1: vgpu is of slices, and gpu is a whole GPU: ask for one of the two",
		"sbatch -p whole --gres=gpu:1 --vgpu-mem=2G --wrap true":    "--vgpu-mem=2G: this is of slices, and the job asks for whole GPUs: use --gres=vgpu:N instead of these",
	} {
		if result := run(t, one, line); result.Code == 0 || !strings.Contains(result.Stderr, "vgpu: ") || !strings.Contains(result.Stderr, says) {
			t.Errorf("want %q: %s", says, result)
		}
	}
}

// TestWithoutGPUInGresTypesTheScriptIsNotAsked is why "refuse" needs it there.
func TestWithoutGPUInGresTypesTheScriptIsNotAsked(t *testing.T) {
	begin(t)
	folder := openDir(t)
	text := ok(t, root, "cat "+c.Home.Path("etc", "slurm.conf")).Stdout
	without := strings.NewReplacer("GresTypes=gpu,shard,", "GresTypes=", "GresTypes=gpu,", "GresTypes=") // shard needs gpu
	if err := os.WriteFile(filepath.Join(folder, "slurm.conf"), []byte(without.Replace(text)), 0o644); err != nil {
		t.Fatal(err)
	}
	ok(t, root, "cp "+c.Home.Path("etc", "cli_filter.lua")+" "+folder+"; chmod 755 "+folder)
	const line = " sbatch -p vgpu --gpus=1 --wrap true"
	result := run(t, one, "SLURM_CONF="+folder+"/slurm.conf"+line)
	if result.Code == 0 || strings.Contains(result.Stderr, "vgpu: ") || !strings.Contains(result.Stderr, "Invalid generic resource (gres) specification") {
		t.Errorf("without it: %s", result)
	}
	if result := run(t, one, line); result.Code == 0 || !strings.Contains(result.Stderr, "vgpu: --gpus=1: here GPUs are given out as slices") {
		t.Errorf("with it: %s", result)
	}
}

// TestAWholeGPUBesideSlices: Slurm picks GPUs without knowing where the slices are, so that its number of a job's GPU and
// the GPU that the job has are not the same here.
func TestAWholeGPUBesideSlices(t *testing.T) {
	needStrict(t)
	begin(t)
	slice, releaseSlice := holding(t, one, "-p whole --gres=vgpu:1 --vgpu-mem=3000")
	shared := holdsOn(t, "w1", slice)
	out := batch(t, two, "-p whole --gpus=1", openNodes()+"; echo $SLURM_JOB_GPUS; srun "+sight+"; nvidia-smi --query-gpu=uuid --format=csv,noheader")
	if uuid := strings.Fields(out); !strings.HasPrefix(out, "open 1\n1\n0 cuda=0 gpus=1 on=1 lists=1 loaded=0\nGPU-") || uuid[len(uuid)-1] == shared[0] {
		t.Errorf("beside a slice of %s a whole GPU is:\n%s", shared[0], out)
	}
	out = ok(t, two, "srun -p whole -n1 --gpus-per-task=1 "+sight).Stdout
	if out != "0 cuda=0 gpus=1 on=1 lists=1 loaded=0\n" {
		t.Errorf("a task with a GPU of its own sees:\n%s", out)
	}
	whole, releaseWhole := holding(t, two, "-p whole --gpus=1")
	if held := holdsOn(t, "w1", whole); held[0] == shared[0] {
		t.Errorf("a whole GPU has a slice on it: %v", held)
	}
	// Slices go where slices are; another whole GPU is none, which Slurm knows by itself.
	small, releaseSmall := holding(t, one, "-p whole --gres=vgpu:1 --vgpu-mem=2000 --vgpu-place=spread")
	if held := holdsOn(t, "w1", small); held[0] != shared[0] {
		t.Errorf("a slice stands on a whole GPU: %v", held)
	}
	next := submit(t, two, "-p whole --gpus=1", "nvidia-smi -L | grep -c ^GPU")
	until(t, "a reason of Slurm's", 30*time.Second, func() error {
		if why := strings.TrimSpace(run(t, root, "squeue -h -o '%T %r' -j "+next).Stdout); why != "PENDING Resources" && why != "PENDING Priority" {
			return fmt.Errorf("it is %s", why)
		}
		return nil
	})
	releaseSlice()
	releaseSmall()
	if out := finish(t, two, next); out != "1\n" || restarts(t, next) != "0" {
		t.Errorf("it came back %s times and saw %s", restarts(t, next), out)
	}
	releaseWhole()
}

// TestWholeGPUsThatSlurmCannotCountWait: with tasks by the GPU Slurm does not know that slices are in the way.
func TestWholeGPUsThatSlurmCannotCountWait(t *testing.T) {
	begin(t)
	slice, release := holding(t, one, "-p whole --gres=vgpu:1 --vgpu-mem=3000")
	holdsOn(t, "w1", slice)
	job := submit(t, two, "-p whole -n2 --ntasks-per-gpu=1", "nvidia-smi -L | grep -c ^GPU")
	if why := awaitWaiting(t, job, "1"); !strings.Contains(why, "w1: ") {
		t.Errorf("it waits for %s", why)
	}
	release()
	if out := finish(t, two, job); out != "2\n" {
		t.Errorf("it saw %s", out)
	}
}

func TestStepsOfAJobWithWholeGPUs(t *testing.T) {
	needStrict(t)
	begin(t)
	out := batch(t, one, "-p whole -n2 --gres=gpu:2", `
		echo all; srun -n1 `+sight+`
		echo one; srun -n1 --gpus=1 `+sight+`
		echo none; srun -n1 --gres=none `+sight+`
		echo slice; srun -n1 --vgpu-mem=1000 true 2>&1 | grep -o 'vgpu: --vgpu-mem=1000: the job holds whole GPUs'
		echo parallel
		for i in 1 2; do srun -n1 --exact --gres=gpu:1 sh -c 'nvidia-smi --query-gpu=uuid --format=csv,noheader; until [ -e end ]; do sleep 0.1; done' > gpu.$i & done
		until [ "$(cat gpu.? 2>/dev/null | wc -l)" = 2 ]; do sleep 0.1; done
		touch end; wait; cat gpu.? | sort -u | grep -c ^GPU-; rm end gpu.?`)
	if out = retried.ReplaceAllString(out, ""); out != `all
0 cuda=0,1 gpus=0,1 on=2 lists=2 loaded=0
one
0 cuda=0 gpus=0 on=1 lists=1 loaded=0
none
0 cuda= gpus= on= lists=0 loaded=0
slice
vgpu: --vgpu-mem=1000: the job holds whole GPUs
parallel
2
` {
		t.Errorf("steps see:\n%s", out)
	}
}

func TestGPUsAreMaskedInAJobContainer(t *testing.T) {
	needStrict(t)
	begin(t)
	withJobContainers(t, "w1")
	all := openNodes()
	for options, want := range map[string]string{
		"":                              "",
		"--gpus=1":                      "open 0\n",
		"--gpus=2":                      "open 0\nopen 1\n",
		"--gres=vgpu:1 --vgpu-mem=3000": "open 0\n",
	} {
		script := all + "; ls /tmp"
		if out := batch(t, one, "-p whole "+options, script+"; srun sh -c '"+script+"'"); out != want+want {
			t.Errorf("%s: want %q twice, got %q", options, want, out)
		}
	}
}

func TestSlurmsOwnGPUsBesideSlices(t *testing.T) {
	needStrict(t)
	begin(t)
	all := strings.Fields(run(t, root, "nvidia-smi --query-gpu=uuid --format=csv,noheader").Stdout)
	what := openNodes() + "; nvidia-smi --query-gpu=uuid --format=csv,noheader; env | grep -c ^LD_PRELOAD=; true"
	for options, want := range map[string]string{
		"--gres=gpu:1":                    "open 1\n" + all[1] + "\n0\n",
		"":                                "No devices were found\n0\n",
		"--gres=vgpu:1 --vgpu-mem=3000":   "open 0\n" + all[0] + "\n0\n",
		"--gres=vgpu:1 --vgpu-mem=140000": "open 0\n" + all[0] + "\n0\n",
	} {
		if out := batch(t, one, "-p split "+options, what); out != want {
			t.Errorf("%s: want %q, got %q", options, want, out)
		}
	}
	slice, release := holding(t, one, "-p split --gres=vgpu:1 --vgpu-mem=140000")
	holdsOn(t, "s1", slice)
	if said := ok(t, root, tool("s1", "status")).Stdout; !strings.Contains(said, "slurm: Slurm hands it out by itself") || strings.Contains(said, "lost") {
		t.Errorf("the status of a split node is:\n%s", said)
	}
	if said := ok(t, root, metricsOf("s1", "")).Stdout; !strings.Contains(said, `state="slurm"`) || strings.Contains(said, `state="lost"`) {
		t.Errorf("the metrics of a split node are:\n%s", said)
	}
	if out := batch(t, two, "-p split --gpus=1", "nvidia-smi --query-gpu=uuid --format=csv,noheader; srun nvidia-smi --query-gpu=uuid --format=csv,noheader; vgpu-fill"); !strings.HasPrefix(out, all[1]+"\n"+all[1]+"\n") {
		t.Errorf("Slurm's GPU beside a slice of another is:\n%s", out)
	} else {
		wantNoLimit(t, out)
	}
	release()
}

func TestASiteWithWholeGPUsIsChecked(t *testing.T) {
	begin(t)
	whole, releaseWhole := holding(t, one, "-p whole --gpus=1")
	none, releaseNone := holding(t, one, "-p whole")
	uuid := holdsOn(t, "w1", whole)[0]
	until(t, "the mask of job "+none, 30*time.Second, func() error {
		_, err := os.Stat(c.Home.Path("run", "w1", "jobs", none, "grant.json"))
		return err
	})
	ours := func(node, command string) string {
		return run(t, root, strings.Replace(command, " ", " --config "+c.ConfigOf(node)+" --node "+node+" ", 1)).Stdout
	}
	for node, says := range map[string]string{
		"w1": "whole GPUs: ok: gres/gpu of node w1 are placed by slurm-vgpu",
		"s1": "slurm_gpus: ok: Slurm hands out 1 GPUs of node s1, slices are placed on the other 1",
	} {
		if said := ours(node, "vgpu-gres check -v"); !strings.Contains(said, says) {
			t.Errorf("check of %s: %s", node, said)
		}
		said := ours(node, "vgpuctl doctor")
		// The machine's own MariaDB is not the cluster's.
		if strings.Contains(strings.ReplaceAll(said, "fail  database", ""), "fail  ") {
			t.Errorf("doctor of %s: %s", node, said)
		}
	}
	if said := ours("w1", "vgpuctl explain "+whole); !strings.Contains(said, uuid+", whole\n") {
		t.Errorf("a job with a whole GPU is explained: %s", said)
	}
	if said := ours("w1", "vgpuctl explain "+none); !strings.Contains(said, "are masked\n") {
		t.Errorf("a job without GPUs is explained: %s", said)
	}
	if result := run(t, root, "vgpuctl --config "+c.ConfigOf("w1")+" --node w1 set "+whole+" --mem 5M"); result.Code != 1 || !strings.Contains(result.Stderr, "the job holds whole GPUs, which have no limit") {
		t.Errorf("a whole GPU is changed: %s", result)
	}
	releaseWhole()
	releaseNone()
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seen prints the memory of every GPU of the job, one a line, in MiB. Where isolation is preload,
// TestMain makes it leave out the GPUs that are not the job's: they are not masked.
var seen = "nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits"

// account is one column of a job's row in Slurm's accounting.
func account(t *testing.T, job, column string) string {
	t.Helper()
	return strings.TrimSpace(run(t, root, "sacct -X -n -P -o "+column+" -j "+job).Stdout)
}

// tres waits until a job's row says all of these.
func wantTRES(t *testing.T, job, column string, want ...string) {
	t.Helper()
	until(t, column+" of job "+job, 30*time.Second, func() error {
		have := "," + account(t, job, column) + ","
		for _, w := range want {
			// Slurm 24.11 writes a unit behind gres/gpumem, which is a name of its own as well.
			if !strings.Contains(have, ","+w+",") && !strings.Contains(have, ","+w+"M,") {
				return fmt.Errorf("%s lacks %s", have, w)
			}
		}
		return nil
	})
}

// usage is what AdminComment says.
type usage struct {
	VGPU struct {
		V     int `json:"v"`
		Nodes map[string][]struct {
			GPU     string `json:"gpu"`
			MemMiB  int    `json:"mem_mib"`
			Cores   int    `json:"cores"`
			PeakMiB int    `json:"peak_mib"`
			Refused int    `json:"refused"`
			// Missing is nil.
			GPUSeconds *float64 `json:"gpu_s"`
		} `json:"nodes"`
		Refusals map[string]string `json:"refusals"`
	} `json:"vgpu"`
}

// awaitUsage polls until a job's AdminComment tells of its usage.
func awaitUsage(t *testing.T, job string, deadline time.Duration) (u usage) {
	t.Helper()
	until(t, "AdminComment of job "+job, deadline, func() error {
		comment := account(t, job, "AdminComment")
		if err := json.Unmarshal([]byte(comment), &u); err != nil {
			return fmt.Errorf("it is %q: %w", comment, err)
		}
		if u.VGPU.V != 1 {
			return fmt.Errorf("it is %q", comment)
		}
		return nil
	})
	return u
}

func TestMainJob(t *testing.T) {
	begin(t)
	job := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=30", seen+"; nvidia-smi; vgpu-fill; id -u")
	out := finish(t, one, job)
	if first, _, _ := strings.Cut(out, "\n"); first != "3000" {
		t.Errorf("nvidia-smi in the job: %s", out)
	}
	if !strings.Contains(out, "/ 3000MiB") || strings.Contains(out, "143771") {
		t.Errorf("nvidia-smi's table: %s", out)
	}
	wantLimit(t, out, 3000)
	if !strings.HasSuffix(out, fmt.Sprintf("\n%d\n", one.UID)) {
		t.Errorf("not run as %s: %s", one.Name, out)
	}
	wantTRES(t, job, "ReqTRES", "gres/vgpu=1", "gres/gpumem=3000", "gres/gpucores=30")
	wantTRES(t, job, "AllocTRES", "gres/vgpu=1", "gres/gpumem=3000", "gres/gpucores=30")
	u := awaitUsage(t, job, 60*time.Second)
	devices := u.VGPU.Nodes["n1"]
	if len(devices) != 1 {
		t.Fatalf("AdminComment: %+v", u)
	}
	d := devices[0]
	// Nothing was launched; share_test.go is about what is.
	if d.GPUSeconds == nil || *d.GPUSeconds != 0 {
		t.Errorf("AdminComment does not tell of GPU time, or of some that nobody used: %s", account(t, job, "AdminComment"))
	}
	if d.MemMiB != 3000 || d.Cores != 30 || d.PeakMiB < 2000 || d.PeakMiB > 3000 || d.Refused < 1 || !strings.HasPrefix(d.GPU, "GPU-") {
		t.Errorf("AdminComment: %+v", d)
	}
}

func TestUsageOfArrayTasks(t *testing.T) {
	begin(t)
	job := submit(t, one, "--array=1-3 --gres=vgpu:1 --vgpu-mem=3000 -o task-%a.out", "vgpu-fill --upto $((SLURM_ARRAY_TASK_ID * 500))")
	for task := 1; task <= 3; task++ {
		u := awaitUsage(t, fmt.Sprintf("%s_%d", job, task), 60*time.Second)
		d := u.VGPU.Nodes["n1"]
		if len(d) != 1 || d[0].PeakMiB < 500*task || d[0].PeakMiB > 500*task+contextMiB {
			t.Errorf("task %d took %d MiB, its AdminComment is %+v", task, 500*task, u)
		}
	}
}

func TestUsageOfTwoNodes(t *testing.T) {
	begin(t)
	job := submit(t, one, "-p all -N2 --gres=vgpu:1 --vgpu-mem=3000", "srun -N2 -n2 vgpu-fill")
	out := finish(t, one, job)
	if strings.Count(out, "CUDA_ERROR_OUT_OF_MEMORY") != 2 {
		t.Errorf("on two nodes: %s", out)
	}
	until(t, "AdminComment from both nodes", 60*time.Second, func() error {
		u := awaitUsage(t, job, 60*time.Second)
		for _, node := range []string{"n1", "n2"} {
			if d := u.VGPU.Nodes[node]; len(d) != 1 || d[0].MemMiB != 3000 || d[0].PeakMiB < 2000 {
				return fmt.Errorf("%s: %+v", node, u)
			}
		}
		return nil
	})
}

func TestEveryWayToAsk(t *testing.T) {
	begin(t)
	quarter := strconv.Itoa(gpuMiB / 4)
	share := strconv.Itoa(gpuMiB / slicesPerGPU)
	for _, tc := range []struct{ name, line, want string }{
		{"gres alone", "srun --gres=vgpu:1,gpumem:3000 " + seen, "3000"},
		{"memory alone", "srun --gres=gpumem:2500 " + seen, "2500"},
		{"option", "srun --gres=vgpu:1 --vgpu-mem=3000M " + seen, "3000"},
		{"GiB", "srun --gres=vgpu:1 --vgpu-mem=8G " + seen, "8192"},
		{"percent", "srun --gres=vgpu:1 --vgpu-mem=25% " + seen, quarter},
		{"no size", "srun --gres=vgpu:1 " + seen, share},
		{"environment", "VGPU_MEM=1234 srun --gres=vgpu:1 " + seen, "1234"},
		{"option over environment", "VGPU_MEM=1234 srun --gres=vgpu:1 --vgpu-mem=2345 " + seen, "2345"},
		{"a fraction of GiB, and percent", "srun --gres=vgpu:1 --vgpu-mem=1.5GB --vgpu-cores=30% " + seen, "1536"},
		{"share in the environment", "VGPU_MEM=10% srun --gres=vgpu:1 " + seen, strconv.Itoa(gpuMiB / 10)},
		{"gres over environment", "VGPU_MEM=10% srun --gres=vgpu:1,gpumem:50000 " + seen, "50000"},
		{"gres over environment in a job's step", "VGPU_MEM=10% salloc --quiet --gres=vgpu:1,gpumem:50000 srun --gres=vgpu:1,gpumem:20000 " + seen, "20000"},
		{"salloc", "salloc --quiet --gres=vgpu:1 --vgpu-mem=3000 srun " + seen, "3000"},
		{"sbatch export none", "sbatch --quiet --wait --export=NONE --gres=vgpu:1 --vgpu-mem=3000 -o export-%j.out --wrap '" +
			c.Home.Path("bin", "nvidia-smi") + strings.TrimPrefix(seen, "nvidia-smi") + "' && cat export-*.out && rm export-*.out", "3000"},
		{"two slices", "srun --gres=vgpu:2 --vgpu-mem=3000 " + seen, "3000\n3000"},
		{"two slices in gres", "srun --gres=vgpu:2,gpumem:6000,gpucores:60 " + seen, "3000\n3000"},
		{"by type", "srun --gres=vgpu:1 --vgpu-mem=3000 --vgpu-gpu=h200 " + seen, "3000"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			result := run(t, one, tc.line)
			if got := strings.TrimSpace(result.Stdout); got != tc.want || result.Code != 0 {
				t.Errorf("want %q: %s", tc.want, result)
			}
		})
	}
}

func TestDirectivesInTheScript(t *testing.T) {
	begin(t)
	out := batch(t, one, "", "#!/bin/bash\n#SBATCH --gres=vgpu:1\n#SBATCH --vgpu-mem=3000\n#SBATCH --vgpu-cores=20\n"+seen+"\nsrun "+seen+"\n")
	if out != "3000\n3000\n" {
		t.Errorf("in the batch step and a step of it: %q", out)
	}
}

func TestChosenGPU(t *testing.T) {
	begin(t)
	uuids := strings.Fields(run(t, root, "nvidia-smi --query-gpu=uuid --format=csv,noheader").Stdout)
	if len(uuids) != gpus {
		t.Fatalf("nvidia-smi: %v", uuids)
	}
	ask := "nvidia-smi --query-gpu=uuid --format=csv,noheader"
	for _, uuid := range uuids {
		if got := strings.TrimSpace(run(t, one, "srun --gres=vgpu:1 --vgpu-mem=100M --vgpu-uuid="+uuid+" "+ask).Stdout); got != uuid {
			t.Errorf("asked for %s, got %q", uuid, got)
		}
		if got := strings.TrimSpace(run(t, one, "srun --gres=vgpu:1 --vgpu-mem=100M '--vgpu-uuid=!"+uuid+"' "+ask).Stdout); got == uuid || got == "" {
			t.Errorf("excluded %s, got %q", uuid, got)
		}
	}
}

func TestTwoUsersShareOneGPU(t *testing.T) {
	begin(t)
	first, releaseFirst := holding(t, one, "--gres=vgpu:1 --vgpu-mem=8G")
	second, releaseSecond := holding(t, two, "--gres=vgpu:1,gpumem:5000")
	a, b := slicesOf(t, first), slicesOf(t, second)
	if len(a) != 1 || len(b) != 1 || a[0].Device != b[0].Device || a[0].MemMiB != 8192 || b[0].MemMiB != 5000 {
		t.Errorf("slices %+v and %+v are not side by side on one GPU", a, b)
	}
	// Each sees its own slice and its own processes only.
	for _, tc := range []struct {
		job  string
		user int
		want string
	}{{first, 0, "8192"}, {second, 1, "5000"}} {
		result := run(t, c.Users[tc.user], "srun --overlap --jobid="+tc.job+" "+seen)
		if strings.TrimSpace(result.Stdout) != tc.want {
			t.Errorf("job %s sees %s", tc.job, result)
		}
	}
	releaseFirst()
	finish(t, one, first)
	if left := slicesOf(t, second); len(left) != 1 {
		t.Errorf("the neighbour's slice after the first job ended: %+v", left)
	}
	releaseSecond()
	finish(t, two, second)
}

func TestPackAndSpread(t *testing.T) {
	begin(t)
	for _, tc := range []struct {
		place string
		same  bool
	}{{"pack", true}, {"spread", false}} {
		a, releaseA := holding(t, one, "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-place="+tc.place)
		held := slicesOf(t, a)
		b, releaseB := holding(t, one, "--gres=vgpu:1 --vgpu-mem=1000 --vgpu-place="+tc.place)
		if same := slicesOf(t, b)[0].Device == held[0].Device; same != tc.same {
			t.Errorf("%s: on the same GPU: %v", tc.place, same)
		}
		releaseA()
		releaseB()
		finish(t, one, a)
		finish(t, one, b)
		settle(t)
	}
}

func TestSlicesOfOneJobAreOnDifferentGPUs(t *testing.T) {
	begin(t)
	job, release := holding(t, one, "--gres=vgpu:2 --vgpu-mem=2000")
	held := slicesOf(t, job)
	if len(held) != 2 || held[0].Device == held[1].Device {
		t.Errorf("slices: %+v", held)
	}
	release()
	finish(t, one, job)
}

func TestProcessesOfAJobShareItsLimit(t *testing.T) {
	begin(t)
	out := batch(t, one, "-n1 --gres=vgpu:1 --vgpu-mem=8000", `
		for i in 1 2 3 4 5 6 7 8; do vgpu-fill --step 16 --hold-until go > fill.$i 2>&1 & done
		until [ "$(grep -ls CUDA_ERROR_OUT_OF_MEMORY fill.? | wc -l)" = 8 ]; do sleep 0.1; done
		echo "used $(nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits)"
		touch go; wait; rm go
		cat fill.? | sed -n 's/.*after \([0-9]*\) MiB.*/took \1/p'; rm fill.?`)
	sum, used := 0, 0
	for line := range strings.Lines(out) {
		var n int
		if _, err := fmt.Sscanf(line, "took %d", &n); err == nil {
			sum += n
		}
		fmt.Sscanf(line, "used %d", &used)
	}
	if sum > 8000 || used > 8000 {
		t.Errorf("eight processes together took %d MiB of 8000, nvidia-smi says %d", sum, used)
	}
	if used < 7900 {
		t.Errorf("only %d MiB of 8000 are usable:\n%s", used, out)
	}
}

func TestSteps(t *testing.T) {
	begin(t)
	out := batch(t, one, "-n4 --gres=vgpu:1 --vgpu-mem=6000", `
		srun -n1 --overlap --vgpu-mem=1000 bash -c '`+seen+`; vgpu-fill'
		echo larger
		srun -n1 --overlap --vgpu-mem=7000 true; echo "code $?"
		echo both
		srun -n1 --overlap vgpu-fill --upto 3000 --hold-until done1 > first &
		until grep -qs "after 3000 MiB" first; do sleep 0.1; done
		srun -n1 --overlap --vgpu-mem=4000 vgpu-fill
		touch done1; wait; rm done1`)
	smaller, rest, _ := strings.Cut(out, "larger\n")
	larger, both, _ := strings.Cut(rest, "both\n")
	if !strings.HasPrefix(smaller, "1000\n") {
		t.Errorf("a smaller step: %s", smaller)
	}
	wantLimit(t, smaller, 1000)
	if strings.Contains(larger, "code 0") || !strings.Contains(larger, "vgpu: ") || !strings.Contains(larger, "6000") {
		t.Errorf("a larger step: %s", larger)
	}
	if got := took(t, both); got > 3000 {
		t.Errorf("two steps together took 3000 and %d MiB of 6000: %s", got, both)
	}
}

// Programs read numbers out of CUDA_VISIBLE_DEVICES. What a user puts there his programs find, those that another one starts after
// it began with CUDA as well, and it means the same to them.
func TestVisibleDevicesAreNumbers(t *testing.T) {
	needStrict(t)
	begin(t)

	out := batch(t, one, "--gres=vgpu:2 --vgpu-mem=3000", `echo "step $CUDA_VISIBLE_DEVICES"
		for list in 0 1 1,0; do
			CUDA_VISIBLE_DEVICES=$list python3 -c 'import ctypes, os; cuda = ctypes.CDLL("libcuda.so.1"); print(cuda.cuInit(0), flush=True)
os.system("echo child $CUDA_VISIBLE_DEVICES; vgpu-fill --upto 100 2>&1 | grep -c stopped")'
		done
		CUDA_VISIBLE_DEVICES=2 vgpu-fill 2>&1 | grep -o NO_DEVICE
		CUDA_VISIBLE_DEVICES=1 vgpu-fill
		true`)
	if want := "step 0,1\n0\nchild 0\n1\n0\nchild 1\n1\n0\nchild 1,0\n1\nNO_DEVICE\n"; !strings.HasPrefix(out, want) {
		t.Errorf("want %q first:\n%s", want, out)
	}
	wantLimit(t, out, 3000)
}

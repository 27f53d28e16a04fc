// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// component is one of a heterogeneous job's: what it asks for, is charged and its program sees.
type component struct {
	options string
	mem     int
	cores   int
}

// wantCharged checks what Slurm counts for a component.
func wantCharged(t *testing.T, job string, want component) {
	t.Helper()
	text := ok(t, root, "scontrol show job "+job).Stdout
	_, tres, found := strings.Cut(text, "TRES=") // of the first component that is printed
	if !found {
		t.Fatalf("no TRES: %s", text)
	}
	tres, _, _ = strings.Cut(tres, "\n")
	counted := map[string]string{"gres/gpumem": "0", "gres/gpucores": "0"}
	for field := range strings.SplitSeq(tres, ",") {
		name, n, _ := strings.Cut(field, "=")
		counted[name] = strings.TrimSuffix(n, "M") // 24.11 writes one
	}
	for name, n := range map[string]int{"gres/vgpu": 1, "gres/gpumem": want.mem, "gres/gpucores": want.cores} {
		if counted[name] != strconv.Itoa(n) {
			t.Errorf("job %s is charged %s, want %s=%d", job, tres, name, n)
		}
	}
}

// see prints a name, then the memory of the slice as a program sees it.
const see = `bash -c 'echo $0 $(` + `nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits)'`

// wantSeen checks lines "name MiB" in a text, in any order.
func wantSeen(t *testing.T, what, text string, want ...string) {
	t.Helper()
	got := map[string]bool{}
	for line := range strings.Lines(text) {
		got[strings.TrimSpace(line)] = true
	}
	for _, line := range want {
		if !got[line] {
			t.Errorf("%s: no line %q in:\n%s", what, line, text)
		}
	}
}

// heterogeneous starts a job of two components that lie on two nodes, and holds it. Slurm's backfill
// starts such jobs, and sleeps while nothing happens.
func heterogeneous(t *testing.T, submit func() string) (first, second string) {
	t.Helper()
	first = submit()
	n, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	awaitBoth(t, first, "RUNNING")
	return first, strconv.Itoa(n + 1)
}

// awaitBoth waits until both components of a job are in a state. squeue prints all of them.
func awaitBoth(t *testing.T, first, want string) {
	t.Helper()
	var stirred time.Time
	until(t, "both components of job "+first+" to be "+want, 60*time.Second, func() error {
		now := strings.Fields(run(t, root, "squeue -h -t all -o %T -j "+first).Stdout)
		switch {
		case len(now) == 2 && now[0] == want && now[1] == want:
			return nil
		case slices.Contains(now, "FAILED"):
			t.Fatalf("they are %v:\n%s", now, output(t, one, first))
		}
		if want == "RUNNING" && time.Since(stirred) > time.Second {
			run(t, root, "sbatch -p all -o /dev/null --wrap true")
			stirred = time.Now()
		}
		return fmt.Errorf("they are %v", now)
	})
}

func TestComponentsOfAJobHaveTheirOwnOptions(t *testing.T) {
	begin(t)
	for name, two := range map[string][2]component{
		"cores in the first": {{"--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=20", 1000, 20}, {"--gres=vgpu:1 --vgpu-mem=3000", 3000, 0}},
		"one of each":        {{"--gres=vgpu:1,gpumem:1000", 1000, 0}, {"--gres=vgpu:1 --vgpu-mem=2050M --vgpu-cores=10", 2050, 10}},
	} {
		gate := filepath.Join(openDir(t), "gate")
		options := [2]string{"-p all -w n1 " + two[0].options, "-p all -w n2 " + two[1].options}
		body := "echo batch $(" + seen + ")\n" +
			"srun --het-group=0 " + see + " first; srun --het-group=1 " + see + " second\n" +
			"srun --het-group=0,1 bash -c 'echo all-$SLURMD_NODENAME $(" + seen + ")'\n" +
			"srun --het-group=0 --vgpu-mem=500 " + see + " cut-first; srun --het-group=1 --vgpu-mem=600 " + see + " cut-second\n" +
			"srun --gres=gpumem:700 " + see + " gres-first : --gres=gpumem:800 " + see + " gres-second\n" +
			"srun --vgpu-mem=500 true : --vgpu-mem=600 true; echo code $?\n" +
			"while [ ! -e " + gate + " ]; do sleep 0.1; done"
		for form, start := range map[string]func() string{
			"directives": func() string {
				return submit(t, one, "", "#!/bin/bash\n#SBATCH "+options[0]+"\n#SBATCH hetjob\n#SBATCH "+options[1]+"\n"+body+"\n")
			},
			"command line": func() string { return submit(t, one, options[0]+" : "+options[1], body) },
		} {
			t.Run(name+"/"+form, func(t *testing.T) {
				first, second := heterogeneous(t, start)
				wantCharged(t, first, two[0])
				wantCharged(t, second, two[1])
				if err := os.WriteFile(gate, nil, 0o644); err != nil {
					t.Fatal(err)
				}
				defer os.Remove(gate)
				awaitBoth(t, first, "COMPLETED")
				out := output(t, one, first)
				wantSeen(t, "sbatch", out,
					fmt.Sprint("batch ", two[0].mem), fmt.Sprint("first ", two[0].mem), fmt.Sprint("second ", two[1].mem),
					fmt.Sprint("all-n1 ", two[0].mem), fmt.Sprint("all-n2 ", two[1].mem),
					"cut-first 500", "cut-second 600", "gres-first 700", "gres-second 800", "code 1")
				if !strings.Contains(out, "vgpu: --vgpu-mem differs between the components of this srun") {
					t.Errorf("no reason for the refusal:\n%s", out)
				}
			})
		}
	}
}

func TestComponentsOfAnSrunThatAllocates(t *testing.T) {
	begin(t)
	gpus := c.Home.Path("bin", "nvidia-smi") + strings.TrimPrefix(seen, "nvidia-smi")
	for _, two := range [][2]component{
		{{"--gres=vgpu:1 --vgpu-mem=3000", 3000, 0}, {"--gres=vgpu:1 --vgpu-mem=1000", 1000, 0}},
		{{"--gres=vgpu:1 --vgpu-mem=1111", 1111, 0}, {"--gres=vgpu:1 --vgpu-mem=2222", 2222, 0}},
		{{"--gres=vgpu:1 --vgpu-mem=1000 --vgpu-cores=20", 1000, 20}, {"--gres=vgpu:1 --vgpu-mem=2000", 2000, 0}},
	} {
		for _, export := range []string{"ALL", "NONE"} {
			out := ok(t, one, fmt.Sprintf("srun -l --export=%s -p all -w n1 %s %s : -p all -w n2 %s %s",
				export, two[0].options, gpus, two[1].options, gpus)).Stdout
			wantSeen(t, fmt.Sprint("srun ", two), out, fmt.Sprint("0: ", two[0].mem), fmt.Sprint("1: ", two[1].mem))
		}
		out := ok(t, one, fmt.Sprintf("salloc --quiet -p all -w n1 %s : -p all -w n2 %s srun -l --het-group=0,1 %s",
			two[0].options, two[1].options, seen)).Stdout
		wantSeen(t, fmt.Sprint("salloc ", two), out, fmt.Sprint("0: ", two[0].mem), fmt.Sprint("1: ", two[1].mem))
	}
	// What the task starts is a step like any other.
	if out := ok(t, one, "srun --gres=vgpu:1 --vgpu-mem=3000 srun --overlap --vgpu-mem=700 "+seen).Stdout; strings.TrimSpace(out) != "700" {
		t.Errorf("a step in the task of an srun that allocated sees %s", out)
	}
	if result := run(t, one, "srun -p all -w n1 --gres=vgpu:1 --vgpu-mem=1000 true : -p all -w n2 --vgpu-mem=2000 true"); result.Code == 0 ||
		!strings.Contains(result.Stderr, "vgpu: --vgpu-mem=2000: say how many slices as well, as in --gres=vgpu:1") {
		t.Errorf("a second component that says no number of slices: %s", result)
	}
}

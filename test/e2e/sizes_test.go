// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The cluster's config.yaml has sizes: half, of memory and time, and small, of 8 GiB.
const (
	halfMiB  = 143771 / 2
	smallMiB = 8192
)

// What one program prints in a step of a job, a task of an array, and a component.
func TestSlicesAreAskedForByName(t *testing.T) {
	begin(t)
	t.Run("batch", func(t *testing.T) {
		gate := filepath.Join(openDir(t), "gate")
		steps := []stepAsked{{"", "71885"}, {"--vgpu-mem=1000", "1000"}, {"--gres=vgpu:1,gpumem:2000", "2000"},
			{"--gres=vgpu:half:1", "71885"}, {"--gres=vgpu:small:1", "8192"}}
		job := submit(t, one, "", "#!/bin/bash\n#SBATCH --gres=vgpu:half:1\n"+scriptOf("srun -n1", steps)+"while [ ! -e "+gate+" ]; do sleep 0.1; done\n")
		held := slicesOf(t, job)
		if len(held) != 1 || held[0].MemMiB != halfMiB || held[0].SMPercent != 50 {
			t.Errorf("a half is %+v", held)
		}
		wantCharged(t, job, component{"", halfMiB, 50})
		wantFit(t, map[string]int{"half": 3, "small": 26})
		if err := os.WriteFile(gate, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		wantEachSees(t, finish(t, one, job), steps)
	})
	t.Run("array", func(t *testing.T) {
		job := submit(t, one, "-a 0-1 -o slurm-%A-%a.out --gres=vgpu:half:1", seen)
		for number := range 2 {
			awaitTask(t, job, number, "COMPLETED")
			out, _ := os.ReadFile(filepath.Join(one.Home, "slurm-"+job+"-"+string(rune('0'+number))+".out"))
			if strings.TrimSpace(string(out)) != "71885" {
				t.Errorf("task %d saw %s", number, out)
			}
		}
	})
	t.Run("components", func(t *testing.T) {
		out := ok(t, one, "salloc --quiet -p all -w n1 --gres=vgpu:half:1 : -p all -w n2 --gres=vgpu:small:1 srun -l --het-group=0,1 "+seen).Stdout
		wantSeen(t, "salloc", out, "0: 71885", "1: 8192")
	})
	t.Run("srun, and a default share", func(t *testing.T) {
		if out := ok(t, one, "VGPU_MEM=1% VGPU_CORES=3 srun --gres=vgpu:small:2 "+seen).Stdout; out != "8192\n8192\n" {
			t.Errorf("it saw %s", out)
		}
	})
	t.Run("shards", func(t *testing.T) {
		needShards(t)
		const asked = "-p shard --gres=vgpu:half:1 "
		if out := batch(t, one, asked, seen); out != "71885\n" {
			t.Errorf("a batch job saw %s", out)
		}
		if out := ok(t, one, "srun "+asked+seen).Stdout; out != "71885\n" {
			t.Errorf("srun's saw %s", out)
		}
	})
}

// wantFit checks how many of each size `vgpuctl nodes` says that n1 has room for.
func wantFit(t *testing.T, want map[string]int) {
	t.Helper()
	var status struct {
		Nodes []struct {
			Node  string
			Sizes map[string]int
		}
	}
	said := ok(t, one, "vgpuctl --config "+c.ConfigPath()+" nodes --json").Stdout
	if err := json.Unmarshal([]byte(said), &status); err != nil {
		t.Fatal(err)
	}
	for _, node := range status.Nodes {
		for name, n := range want {
			if node.Node == "n1" && node.Sizes[name] != n {
				t.Errorf("%d of %s fit, want %d:\n%s", node.Sizes[name], name, n, said)
			}
		}
	}
}

func TestSizesAreRefusedWithTheirNames(t *testing.T) {
	begin(t)
	before := lastJob(t)
	for options, says := range map[string]string{
		"--gres=vgpu:huge:1":                 "vgpu: --gres=vgpu:huge:1: there is no size huge: the sizes are half, small",
		"--gres=vgpu:h200:1":                 "vgpu: --gres=vgpu:h200:1: vgpu has no types: use --gres=vgpu:1 --vgpu-gpu=h200",
		"--gres=vgpu:half:1 --vgpu-mem=3000": "vgpu: --gres=vgpu:half:1 and --vgpu-mem=3000: the size says this already: give one of the two",
	} {
		for _, command := range []string{"sbatch --wrap true", "srun true"} {
			program, rest, _ := strings.Cut(command, " ")
			if result := run(t, one, program+" "+options+" "+rest); result.Code == 0 || !strings.Contains(result.Stderr, says) {
				t.Errorf("%s, want %s", result, says)
			}
		}
	}
	if after := lastJob(t); after != before {
		t.Errorf("there is a job: %s, before %s", after, before)
	}
}

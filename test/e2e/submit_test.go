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
)

// lastJob is the highest job id that the controller has given out.
func lastJob(t *testing.T) string {
	t.Helper()
	return run(t, root, "scontrol show config | grep NEXT_JOB_ID").Stdout
}

// complaints are the lines of a command's error output that come from slurm-vgpu.
func complaints(stderr string) (lines []string) {
	for line := range strings.Lines(stderr) {
		if strings.Contains(line, "vgpu: ") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

func TestBadOptionsAreRefusedWithTheAcceptedForms(t *testing.T) {
	begin(t)
	digits := strings.Repeat("9", 300)
	for _, tc := range []struct{ option, value, forms string }{
		{"vgpu-mem", "abc", "25%"}, {"vgpu-mem", "-5", "25%"}, {"vgpu-mem", "0", "25%"}, {"vgpu-mem", "3T", "25%"},
		{"vgpu-mem", "", "25%"}, {"vgpu-mem", digits, "25%"}, {"vgpu-mem", "101%", "25%"}, {"vgpu-mem", "8", "did you mean --vgpu-mem=8G?"},
		{"vgpu-cores", "101", "100"}, {"vgpu-cores", "-1", "100"}, {"vgpu-cores", "half", "100"},
		{"vgpu-place", "tight", "spread"}, {"vgpu-policy", "free", "elastic"},
		{"vgpu-gpu", ",", "h200"}, {"vgpu-uuid", "GPU-0", "GPU-1b2c3d4e"},
	} {
		for _, command := range []string{"sbatch --wrap true", "srun true", "salloc true"} {
			program, rest, _ := strings.Cut(command, " ")
			name := fmt.Sprintf("%s/%s=%.12s", program, tc.option, tc.value)
			t.Run(name, func(t *testing.T) {
				before := lastJob(t)
				result := run(t, one, fmt.Sprintf("%s --gres=vgpu:1 '--%s=%s' %s", program, tc.option, tc.value, rest))
				if result.Code == 0 {
					t.Errorf("accepted: %s", result)
				}
				lines := complaints(result.Stderr)
				if len(lines) != 1 {
					t.Fatalf("want one line of ours: %s", result)
				}
				shown := tc.value
				if len(shown) > 12 {
					shown = shown[:12]
				}
				for _, part := range []string{"--" + tc.option + "=" + shown, tc.forms} {
					if !strings.Contains(lines[0], part) {
						t.Errorf("%q does not say %q", lines[0], part)
					}
				}
				if len(lines[0]) > 300 {
					t.Errorf("a line of %d characters: %s", len(lines[0]), lines[0])
				}
				if after := lastJob(t); after != before {
					t.Errorf("there is a job: %s, before %s", after, before)
				}
			})
		}
	}
}

func TestBadOptionInTheScriptIsRefused(t *testing.T) {
	begin(t)
	before := lastJob(t)
	path := filepath.Join(one.Home, "bad.sh")
	if err := os.WriteFile(path, []byte("#!/bin/bash\n#SBATCH --gres=vgpu:1\n#SBATCH --vgpu-mem=lots\ntrue\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	result := run(t, one, "sbatch bad.sh")
	if result.Code == 0 || len(complaints(result.Stderr)) != 1 || !strings.Contains(result.Stderr, "--vgpu-mem=lots") {
		t.Error(result)
	}
	if lastJob(t) != before {
		t.Error("there is a job")
	}
}

func TestWhatNoNodeCanHoldIsRefusedWithTheLargest(t *testing.T) {
	begin(t)
	for _, tc := range []struct {
		options string
		says    []string
	}{
		{"--gres=vgpu:1 --vgpu-mem=200000", []string{"200000", "143771"}},
		{"--gres=vgpu:1 --vgpu-mem=150G", []string{"143771"}},
		{"--gres=vgpu:1,gpumem:143772", []string{"143771"}},
		{"--gres=gpumem:143772", []string{"143771"}},
		{"--gres=vgpu:2,gpumem:287544", []string{"143771"}},
		{"--gres=vgpu:3", []string{"the most is 2"}},
		{"--gres=vgpu:3 --vgpu-mem=10M", []string{"the most is 2"}},
		{"--gres=vgpu:1,gpumem:8G", []string{"gpumem:8192"}},
		{"--gres=vgpu:1,gpumem:8Q", []string{"gpumem"}},
		{"--gres=vgpu:1,gpumem:3000,gpucores:101", []string{"100"}},
		{"--gres=vgpu:0", []string{"--gres=vgpu:0: that is no slice"}},
		{"--vgpu-mem=3000", []string{"--vgpu-mem=3000", "--gres=vgpu:1"}},
		{"--vgpu-cores=30", []string{"--vgpu-cores=30", "--gres=vgpu:1"}},
		{"--gres=vgpu:1 --vgpu-gpu=a100", []string{"a100", "h200"}},
	} {
		t.Run(strings.ReplaceAll(tc.options, " ", "_"), func(t *testing.T) {
			before := lastJob(t)
			for _, line := range []string{"sbatch " + tc.options + " --wrap true", "srun " + tc.options + " true"} {
				result := run(t, one, line)
				if result.Code == 0 {
					t.Errorf("accepted: %s", result)
				}
				lines := complaints(result.Stderr)
				if len(lines) == 0 {
					t.Fatalf("no reason: %s", result)
				}
				for _, part := range tc.says {
					if !strings.Contains(lines[0], part) {
						t.Errorf("%q does not say %q", lines[0], part)
					}
				}
			}
			if after := lastJob(t); after != before {
				t.Errorf("there is a job: %s, before %s", after, before)
			}
		})
	}
}

func TestDefaultsFromTheEnvironmentNeverStopAJob(t *testing.T) {
	begin(t)
	out := batch(t, one, "", "echo fine; env | grep -c ^LD_PRELOAD; true")
	if !strings.Contains(out, "fine\n0") {
		t.Errorf("a job without vgpu: %s", out)
	}
	result := run(t, one, "VGPU_MEM=nonsense srun --gres=vgpu:1 --vgpu-mem=2000 nvidia-smi --query-gpu=memory.total --format=csv,noheader")
	if result.Code != 0 || !strings.Contains(result.Stdout, "2000 MiB") {
		t.Error(result)
	}
	result = run(t, one, "VGPU_MEM=4000 srun true")
	if result.Code != 0 {
		t.Error(result)
	}
}

func TestWholeGPUsBesideSliceOptionsAreRefusedWithWhatToWrite(t *testing.T) {
	begin(t)
	for _, whole := range []string{"--gpus=1", "-G 1", "--gpus-per-node=1", "-n1 --gpus-per-task=1", "-n1 --ntasks-per-gpu=1 --gpus=1"} {
		for _, line := range []string{"sbatch %s --vgpu-mem=2000 --wrap true", "srun %s --vgpu-mem=2000 true", "salloc %s --vgpu-mem=2000 true"} {
			result := run(t, one, fmt.Sprintf(line, whole))
			if result.Code == 0 || !strings.Contains(result.Stderr, "--vgpu-mem=2000 is of slices: use --gres=vgpu:N") {
				t.Errorf("%s: %s", whole, result)
			}
		}
	}
}

func TestTextsThatImitateScontrolAreRefused(t *testing.T) {
	begin(t)
	before := lastJob(t)
	result := run(t, one, "sbatch --gres=vgpu:1 --comment=$'a\nJobId=1 UserId=root(0)' --wrap true")
	if result.Code == 0 || len(complaints(result.Stderr)) != 1 || !strings.Contains(result.Stderr, "--comment: it has a line that imitates scontrol's output") {
		t.Error(result)
	}
	if lastJob(t) != before {
		t.Error("there is a job")
	}
	ok(t, one, "sbatch -o /dev/null --comment=$'a\nJobId=1 UserId=root(0)' --wrap true") // no slices, no question
}

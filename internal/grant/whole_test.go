// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

func wholeGrant(minors ...device.Minor) Grant {
	g := Grant{Job: 7, Node: "n1", Isolation: IsolationStrict, Whole: true, MaskMinors: []device.Minor{9}}
	for _, n := range minors {
		g.Slices = append(g.Slices, device.Slice{Device: device.UUID("GPU-" + string(rune('a'+n))), Minor: n, MemMiB: 10, SMPercent: 100})
	}
	return g
}

func TestNumbersFollowSlurmsChoiceWhereThatWasFree(t *testing.T) {
	for _, tc := range []struct {
		held        []device.Minor
		slurm, want []int
	}{
		{[]device.Minor{0, 1}, []int{0, 1}, []int{0, 1}},
		{[]device.Minor{1}, []int{0}, []int{0}},
		{[]device.Minor{1, 3}, []int{0, 1}, []int{1, 0}},
		{[]device.Minor{4, 5, 6}, []int{1, 5, 2}, []int{1, 5, 2}},
		{[]device.Minor{1, 3}, []int{0}, nil},
	} {
		if got := wholeGrant(tc.held...).Number(tc.slurm); !slices.Equal(got, tc.want) {
			t.Errorf("Slurm's %v for %v: %v, want %v", tc.slurm, tc.held, got, tc.want)
		}
	}
}

func TestAStepHasTheGPUsThatSlurmGaveIt(t *testing.T) {
	dir := rundir.Dir(t.TempDir())
	g := wholeGrant(1, 3)
	g.Numbers = []int{1, 0}
	if err := os.MkdirAll(dir.Job(g.Job), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		step   string
		given  []int
		all    bool
		strict bool
		gpus   []WholeGPU
		masked []device.Minor
		cuda   string
	}{
		{"batch", nil, true, true, []WholeGPU{{1, 1, "0"}, {0, 3, "1"}}, []device.Minor{9}, "0,1"},
		{"0", []int{0}, false, true, []WholeGPU{{0, 3, "0"}}, []device.Minor{9, 1}, "0"},
		{"1", nil, false, true, nil, []device.Minor{9, 1, 3}, ""},
		{"2", []int{0, 1}, false, false, []WholeGPU{{1, 1, "GPU-b"}, {0, 3, "GPU-d"}}, []device.Minor{9}, "GPU-b,GPU-d"},
	} {
		g.Isolation = IsolationPreload
		if tc.strict {
			g.Isolation = IsolationStrict
		}
		step, gpus, err := PrepareWhole(dir, g, tc.step, tc.given, tc.all)
		if err != nil {
			t.Fatal(err)
		}
		cuda := ""
		for _, variable := range step.Env {
			if variable.Name == "CUDA_VISIBLE_DEVICES" {
				cuda = variable.Value
			}
		}
		if diff := cmp.Diff(tc.gpus, gpus); diff != "" || !slices.Equal(step.MaskMinors, tc.masked) || cuda != tc.cuda {
			t.Errorf("step %s: masked %v, CUDA %q, %s", tc.step, step.MaskMinors, cuda, diff)
		}
		if step.PreloadFile != "" {
			t.Errorf("step %s preloads by %s", tc.step, step.PreloadFile)
		}
	}
	g.Numbers = nil
	if _, _, err := PrepareWhole(dir, g, "3", []int{0}, false); err == nil {
		t.Error("a step has GPUs of which nobody knows which they are")
	}
}

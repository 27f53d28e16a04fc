// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

func TestAStepIsBoundAsItAsksOrItsJob(t *testing.T) {
	for _, tc := range []struct {
		job  string
		step request.Bind
		want request.Bind
	}{
		{"", "", ""}, {"bind=task", "", "task"}, {"bind=task", "none", "none"}, {"mem=5", "task", "task"}, {"rubbish", "", ""},
	} {
		if got := bound(grant.Grant{Request: tc.job}, request.Request{Bind: tc.step}); got != tc.want {
			t.Errorf("a step that asks for %q in a job of %q: %q", tc.step, tc.job, got)
		}
	}
	step := grant.Step{OwnMinors: []device.Minor{0, 4}, Visible: []string{"0", "1"}}
	if diff := cmp.Diff([]grant.WholeGPU{{Visible: "0"}, {Own: 4, Visible: "1"}}, seenByTasks(step)); diff != "" {
		t.Error(diff)
	}
}

func TestStepsWithWholeGPUs(t *testing.T) {
	dir := rundir.Dir(t.TempDir())
	g := grant.Grant{Job: 7, Isolation: grant.IsolationStrict, Whole: true, DeviceDir: "/dev", MaskMinors: []device.Minor{0}, Numbers: []int{1, 2},
		Slices: []device.Slice{{Device: "GPU-a", Minor: 1}, {Device: "GPU-b", Minor: 2}}}
	if err := os.MkdirAll(dir.Job(7), 0o755); err != nil {
		t.Fatal(err)
	}
	step := Step{RunDir: dir, Job: 7, GPUs: "2"}
	plan, err := wholePlan(step, g)
	if diff := cmp.Diff([]string{"/dev/nvidia0", "/dev/nvidia1"}, plan.Mask); err != nil || diff != "" || plan.Library != "" || len(plan.Whole) != 1 || !plan.Strict || plan.Foreign != 1 {
		t.Errorf("%+v, %v, %s", plan, err, diff)
	}
	if plan.Own != nil {
		t.Errorf("the node's files are open, and yet %v", plan.Own)
	}
	g.StepDevices = "/dev/steps"
	plan, err = wholePlan(step, g)
	if diff := cmp.Diff([]OwnDevice{{"/dev/steps/nvidia2", "/dev/nvidia2"}}, plan.Own); err != nil || diff != "" {
		t.Errorf("%v, %s", err, diff)
	}
	if plan.DenyUserNamespaces {
		t.Error("user namespaces are allowed, and yet denied")
	}
	g.DenyUserNamespaces = true
	if plan, err := wholePlan(step, g); err != nil || !plan.DenyUserNamespaces {
		t.Errorf("user namespaces are denied, and yet %+v, %v", plan, err)
	}
	step.AllGPUs = true
	if plan, err := wholePlan(step, g); err != nil || len(plan.Mask) != 1 || plan.Whole != nil {
		t.Errorf("a batch script: %+v, %v", plan, err)
	}
	for says, change := range map[string]func(*Step){
		"no list of GPUs":                         func(s *Step) { s.GPUs = "x" },
		"--vgpu-mem=5M: the job holds whole GPUs": func(s *Step) { s.Options = request.Texts{"5M"} },
	} {
		bad := Step{RunDir: dir, Job: 7}
		change(&bad)
		if _, err := wholePlan(bad, g); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("want %q: %v", says, err)
		}
	}
	// Options of a job without GPUs mean nothing to it.
	if _, err := wholePlan(Step{RunDir: dir, Job: 7, Options: request.Texts{"5M"}}, grant.Grant{Job: 7, Whole: true}); err != nil {
		t.Error(err)
	}
}

// Where the node's files are closed a step has its own of the GPUs that it uses, which may be fewer than its job's.
func TestPrepareWithClosedDevices(t *testing.T) {
	step := preparedJob(t, func(g *grant.Grant) { g.StepDevices = "/dev/own" })
	step.GRES = StepGRES{Known: true, PerNode: "gres/vgpu:1,gres/gpumem:1K"}
	got, err := Prepare(step)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]OwnDevice{{"/dev/own/nvidia0", "/dev/nvidia0"}}, got.Own); diff != "" {
		t.Error(diff)
	}
	if len(got.Mask) == 0 || slices.Contains(got.Mask, "/dev/nvidia0") {
		t.Errorf("masked are %v", got.Mask)
	}
}

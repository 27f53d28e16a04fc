// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// resized is what a change of the job leaves in grant.json.
func resized(t *testing.T, dir rundir.Dir, g Grant, memMiB int64, percent int) Grant {
	t.Helper()
	g.Slices = append([]device.Slice(nil), g.Slices...)
	for i := range g.Slices {
		g.Slices[i].MostMiB = g.Slices[i].MemMiB
		g.Slices[i].MemMiB, g.Slices[i].SMPercent = memMiB, percent
	}
	if err := Write(dir.Grant(g.Job), g); err != nil {
		t.Fatal(err)
	}
	return g
}

func stepLimits(t *testing.T, dir rundir.Dir, step string) (got []ledger.LimitsDevice, generation uint32) {
	t.Helper()
	limits, err := ledger.ReadLimits(filepath.Join(dir.Step(12, step), ledger.LimitsFile))
	if err != nil {
		t.Fatal(err)
	}
	return limits.Devices, limits.Generation
}

// A step that starts while the job is changed reads the grant before, and is looked for too early.
func TestAStepThatStartsDuringAChangeHasTheNewLimits(t *testing.T) {
	before := twoSlices()
	dir := jobFolder(t, before)
	resized(t, dir, before, 2000, 20)
	if _, err := Prepare(dir, before, 0, "0", ask(t, "mem=2500;uuid=GPU-bbbbbbbb"), nil); err != nil {
		t.Fatal(err)
	}
	got, generation := stepLimits(t, dir, "0")
	want := []ledger.LimitsDevice{
		{UUID: "GPU-aaaaaaaa-1", JobMemBytes: 2000 << 20, DeviceMemBytes: 10000 << 20, SMPercent: 20, JobSMPercent: 20, Minor: 4},
		{UUID: "GPU-bbbbbbbb-2", StepMemBytes: 2000 << 20, JobMemBytes: 2000 << 20, DeviceMemBytes: 20000 << 20, SMPercent: 20, JobSMPercent: 20, Index: 2, Minor: 6},
	}
	if diff := cmp.Diff(want, got); diff != "" || generation != 2 {
		t.Errorf("generation %d: %s", generation, diff)
	}
}

func TestChangeStepsLeavesOutStepsThatEnd(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	for step, asked := range []string{"", "mem=10%;cores=10", "mem=3000;cores=30"} {
		if _, err := Prepare(dir, g, uint32(step), rundir.StepName(uint32(step)), ask(t, asked), nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(dir.Step(12, "batch"), 0o755); err != nil { // its plugin has not come to the limits yet
		t.Fatal(err)
	}
	steps, err := resized(t, dir, g, 1500, 0).ChangeSteps(dir)
	if err != nil || !cmp.Equal(steps, []string{"0", "1", "2"}) {
		t.Errorf("changed %v, %v", steps, err)
	}
	for step, want := range map[string][4]uint64{"0": {1500, 1500, 0, 0}, "1": {1000, 1500, 10, 10}, "2": {1500, 1500, 0, 0}} {
		got, _ := stepLimits(t, dir, step)
		if is := [4]uint64{got[0].StepMemBytes >> 20, got[1].StepMemBytes >> 20, uint64(got[0].SMPercent), uint64(got[1].SMPercent)}; is != want {
			t.Errorf("step %s has %v, want %v", step, is, want)
		}
	}
	if err := os.Truncate(filepath.Join(dir.Step(12, "1"), ledger.LimitsFile), 0); err != nil {
		t.Fatal(err)
	}
	if steps, err := resized(t, dir, g, 1400, 0).ChangeSteps(dir); err == nil || !cmp.Equal(steps, []string{"0", "2"}) {
		t.Errorf("a damaged page: changed %v, %v", steps, err)
	}
}

func TestWhatAStepAskedForIsKeptAsLongAsItAsks(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	asked := filepath.Join(dir.Step(12, "0"), askedFile)
	for _, text := range []string{"mem=1000", "", "", "cores=10"} {
		if _, err := Prepare(dir, g, 0, "0", ask(t, text), nil); err != nil {
			t.Fatal(err)
		}
		if kept, _ := os.ReadFile(asked); string(kept) != text {
			t.Errorf("%q is kept as %q", text, kept)
		}
	}
	if err := errors.Join(os.Remove(asked), os.MkdirAll(filepath.Join(asked, "x"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"mem=1000", ""} {
		if _, err := Prepare(dir, g, 0, "0", ask(t, text), nil); err == nil {
			t.Errorf("%q is not kept, and that is no error", text)
		}
	}
}

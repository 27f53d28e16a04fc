// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// refuse writes down, as vgpud does, on which GPUs the driver refuses it its calls.
func refuse(t *testing.T, dir rundir.Dir, gpus ...device.UUID) {
	t.Helper()
	text := "b\n"
	for _, gpu := range gpus {
		text += string(gpu) + "\n"
	}
	if err := trusted.WriteFile(dir.VgpudRefused(), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// gated is the page of a step as its programs see it.
func gated(t *testing.T, dir rundir.Dir, step string) (gpus []device.UUID, flag bool) {
	t.Helper()
	devices, _ := stepLimits(t, dir, step)
	for _, d := range devices {
		if d.Gated {
			gpus = append(gpus, d.UUID)
		}
	}
	page, err := os.ReadFile(filepath.Join(dir.Step(12, step), ledger.LimitsFile))
	if err != nil {
		t.Fatal(err)
	}
	return gpus, page[32]&byte(ledger.Gated) != 0 // flags of struct vgpu_limits
}

func TestWhatTheDriverRefusesVgpudIsTheLibrarys(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	for step, asked := range []string{"", "policy=elastic", "cores=10"} {
		g := g
		if asked == "policy=elastic" {
			g.Policy, asked = "elastic", ""
		}
		if err := Write(dir.Grant(12), g); err != nil {
			t.Fatal(err)
		}
		name := rundir.StepName(uint32(step))
		is := func(when string, want ...device.UUID) {
			t.Helper()
			switch {
			case g.Policy == "elastic":
				want = nil // it has no cap
			case asked != "": // less than its job has: vgpud knows no steps
				want = []device.UUID{"GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2"}
			}
			if gpus, flag := gated(t, dir, name); !slices.Equal(gpus, want) || flag != (len(want) > 0) {
				t.Errorf("step %d, %s: %v, flag %t", step, when, gpus, flag)
			}
		}
		refuse(t, dir, "GPU-bbbbbbbb-2")
		if _, err := Prepare(dir, g, uint32(step), name, ask(t, asked), nil); err != nil {
			t.Fatal(err)
		}
		is("refused before", "GPU-bbbbbbbb-2")
		refuse(t, dir, "GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2", "GPU-c")
		if err := Gate(dir); err != nil {
			t.Error(err)
		}
		is("refused meanwhile", "GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2")
		if _, err := g.ChangeSteps(dir); err != nil {
			t.Error(err)
		}
		is("changed", "GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2")
		if err := os.Chmod(dir.VgpudRefused(), 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := g.ChangeSteps(dir); err != nil {
			t.Error(err)
		}
		is("what cannot be believed", "GPU-aaaaaaaa-1", "GPU-bbbbbbbb-2")
		if err := trusted.WriteFile(dir.VgpudRefused(), []byte("another boot\nGPU-bbbbbbbb-2\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := Gate(dir); err != nil {
			t.Error(err)
		}
		is("before a boot")
	}
}

func TestWhoHasNoCapIsNotGated(t *testing.T) {
	for _, percent := range []int{0, 100} {
		g := twoSlices()
		g.Slices[0].SMPercent, g.Request = percent, "mem=3000"
		dir := jobFolder(t, g)
		refuse(t, dir, "GPU-aaaaaaaa-1")
		for step, asked := range map[string]string{"0": "", "1": "cores=10"} {
			if _, err := Prepare(dir, g, 0, step, ask(t, asked), nil); err != nil {
				t.Fatal(err)
			}
			if gpus, flag := gated(t, dir, step); len(gpus) > 0 != (asked != "") || flag != (asked != "") {
				t.Errorf("a share of %d, a step with %q: %v, flag %t", percent, asked, gpus, flag)
			}
		}
	}
}

// Other jobs' pages are changed although one's cannot be.
func TestGateNamesTheJobsThatItDidNotReach(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	if _, err := Prepare(dir, g, 0, "0", ask(t, ""), nil); err != nil {
		t.Fatal(err)
	}
	for job, text := range map[uint32]string{7: "no grant", 13: "{}"} {
		if err := os.MkdirAll(dir.Job(job), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(dir.Grant(job), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(dir.None(8), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refuse(t, dir, "GPU-aaaaaaaa-1")
	if err := Gate(dir); err == nil || !strings.Contains(err.Error(), "job 7") || strings.Contains(err.Error(), "job 8") || strings.Contains(err.Error(), "job 12") {
		t.Errorf("it says %v", err)
	}
	if gpus, _ := gated(t, dir, "0"); len(gpus) != 1 {
		t.Errorf("the other job's: %v", gpus)
	}
}

// vgpud may have looked for steps after this one had read what is refused, and before its limits were there.
func TestAStepThatBeginsDuringARefusalIsGatedAsTheOthers(t *testing.T) {
	g := twoSlices()
	dir := jobFolder(t, g)
	refuse(t, dir)
	for _, want := range [][]device.UUID{{"GPU-aaaaaaaa-1"}, nil} {
		before := g.refused(dir)
		if _, err := Prepare(dir, g, 0, "0", ask(t, ""), nil); err != nil {
			t.Fatal(err)
		}
		refuse(t, dir, want...)
		if err := g.catchUp(dir, dir.Step(12, "0"), before); err != nil {
			t.Fatal(err)
		}
		if gpus, flag := gated(t, dir, "0"); !slices.Equal(gpus, want) || flag != (want != nil) {
			t.Errorf("%v, flag %t, want %v", gpus, flag, want)
		}
	}
}

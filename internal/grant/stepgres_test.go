// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package grant

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// counted is the job of twoSlices with what Slurm counts for it.
func counted() Grant {
	g := twoSlices()
	g.Entitlement = request.Entitlement{Slices: 2, MemMiB: 6000, SMPercent: 60}
	return g
}

// stepSize is what a step has of a slice.
type stepSize struct {
	mem int64
	sm  int
}

var unused stepSize

var stepsGRES = []struct {
	ask   string
	given request.Entitlement
	want  []stepSize // of each slice; unused: it is not the step's
	says  string
}{
	{given: request.Entitlement{Slices: 2, MemMiB: 6000, SMPercent: 60}, want: []stepSize{{3000, 30}, {3000, 30}}},
	{given: request.Entitlement{Slices: 2}, want: []stepSize{{3000, 30}, {3000, 30}}},
	{given: request.Entitlement{Slices: 2, MemMiB: 2001, SMPercent: 21}, want: []stepSize{{1000, 10}, {1000, 10}}},
	{given: request.Entitlement{Slices: 1}, want: []stepSize{{3000, 30}, unused}},
	{given: request.Entitlement{Slices: 1, MemMiB: 1000}, want: []stepSize{{1000, 30}, unused}},
	{given: request.Entitlement{MemMiB: 1000}, want: []stepSize{{1000, 30}, unused}},
	{given: request.Entitlement{SMPercent: 5}, want: []stepSize{{3000, 5}, unused}},
	{given: request.Entitlement{Slices: 1, MemMiB: 1, SMPercent: 1}, want: []stepSize{{1, 1}, unused}},
	{given: request.Entitlement{}, want: []stepSize{unused, unused}},
	{given: request.Entitlement{Slices: 3, MemMiB: 6000}, want: []stepSize{{2000, 30}, {2000, 30}}},
	{given: request.Entitlement{Slices: 1, MemMiB: 3001}, says: "--gres=gpumem:3001: 3001 MiB for each of 1 slices are more than the job's slice of 3000 MiB"},
	{given: request.Entitlement{Slices: 1, SMPercent: 31}, says: "--gres=gpucores:31: 31 percent for each of 1 slices are more than the job's share of 30 percent"},
	{ask: "mem=500;cores=7", given: request.Entitlement{Slices: 1, MemMiB: 1000, SMPercent: 10}, want: []stepSize{{500, 7}, unused}},
	{ask: "mem=3000;cores=30", given: request.Entitlement{Slices: 1, MemMiB: 1000, SMPercent: 10}, want: []stepSize{{1000, 10}, unused}}, // the job's own
	{ask: "mem=1001", given: request.Entitlement{Slices: 1, MemMiB: 1000}, says: "--vgpu-mem=1001 is more than --gres=gpumem:1000 gives each of 1 slices"},
	{ask: "cores=11", given: request.Entitlement{Slices: 1, SMPercent: 10}, says: "--vgpu-cores=11 is more than --gres=gpucores:10 gives each of 1 slices"},
	{ask: "uuid=GPU-bbbbbbbb", given: request.Entitlement{Slices: 1}, want: []stepSize{unused, {3000, 30}}},
	{ask: "uuid=GPU-cccccccc", given: request.Entitlement{Slices: 1}, says: "the job holds no such GPU here"},
}

func TestPrepareWithGRES(t *testing.T) {
	for _, tc := range stepsGRES {
		g := counted()
		dir := jobFolder(t, g)
		got, err := Prepare(dir, g, 0, "0", ask(t, tc.ask), &tc.given)
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q with %+v: got %v, want an error with %q", tc.ask, tc.given, err, tc.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q with %+v: %v", tc.ask, tc.given, err)
			continue
		}
		var seen []stepSize
		for _, s := range got.Slices {
			if seen = append(seen, unused); s.Mine {
				seen[len(seen)-1] = stepSize{s.StepMemMiB, s.StepSM}
			}
		}
		if diff := cmp.Diff(tc.want, seen, cmp.AllowUnexported(stepSize{})); diff != "" {
			t.Errorf("%q with %+v (-want +got):\n%s", tc.ask, tc.given, diff)
		}
		// A change of the job that changes nothing leaves the step what it has.
		before := readLimits(t, dir, "0")
		if _, err := g.ChangeSteps(dir); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, readLimits(t, dir, "0")); diff != "" {
			t.Errorf("%q with %+v, after a change (-before +after):\n%s", tc.ask, tc.given, diff)
		}
	}
}

// A filter is bounded: the slices that are admitted or those that are not, whichever are fewer.
func TestAFilterIsAsShortAsItCanBe(t *testing.T) {
	g := counted()
	g.Slices = nil
	for i := range ledger.MaxDevices {
		g.Slices = append(g.Slices, device.Slice{Device: device.UUID(fmt.Sprintf("GPU-%059d", i)), MemMiB: 1})
	}
	for n := range len(g.Slices) + 1 {
		f := g.filterFor(g.Slices[:n])
		if names := len(f.Only) + len(f.Not); n > 0 && names != min(n, len(g.Slices)-n) || n == 0 && names != len(g.Slices) {
			t.Errorf("%d of %d slices take %d names", n, len(g.Slices), names)
		}
		for i, s := range g.Slices {
			if f.AdmitsUUID(string(s.Device)) != (i < n) {
				t.Errorf("%d slices: slice %d is admitted: %v", n, i, i >= n)
			}
		}
		if text := (request.Request{UUID: f}).Encode(); n > 0 {
			if back, err := request.Decode(text); err != nil || back.UUID.String() != f.String() {
				t.Errorf("%d slices: %v", n, err)
			}
		}
	}
}

// Steps that run at the same time and have one slice each are on different GPUs.
func TestStepsSpreadOverTheirJobsSlices(t *testing.T) {
	g := counted()
	dir := jobFolder(t, g)
	one := request.Entitlement{Slices: 1}
	at := func(step uint32) (gpu device.UUID) {
		prepared, err := Prepare(dir, g, step, rundir.StepName(step), request.Request{}, &one)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range prepared.Slices {
			if s.Mine {
				gpu += s.Device
			}
		}
		return gpu
	}
	if a, b := at(0), at(1); a != "GPU-aaaaaaaa-1" || b != "GPU-bbbbbbbb-2" {
		t.Errorf("got %s and %s", a, b)
	}
	if err := os.RemoveAll(dir.Step(g.Job, "0")); err != nil { // as the step's end does
		t.Fatal(err)
	}
	if got := at(2); got != "GPU-aaaaaaaa-1" {
		t.Errorf("the slice that a step gave back is free, got %s", got)
	}
}

// Programs read numbers out of CUDA_VISIBLE_DEVICES, but without masks a number would be one of the node's GPUs.
func TestVisibleDevicesAreNumbersWhereOthersAreMasked(t *testing.T) {
	for isolation, want := range map[string]string{IsolationStrict: "0,1", IsolationWall: "0,1", IsolationPreload: "GPU-aaaaaaaa-1,GPU-bbbbbbbb-2"} {
		g := counted()
		g.Isolation = isolation
		prepared, err := Prepare(jobFolder(t, g), g, 0, "0", request.Request{}, nil)
		if err != nil || prepared.Env[0] != (EnvVar{"CUDA_VISIBLE_DEVICES", want}) || strings.Join(prepared.Visible, ",") != want {
			t.Errorf("%s: %v, %v, %v", isolation, prepared.Env, prepared.Visible, err)
		}
	}
}

// A job of which Slurm took a share of a large GPU may hold less on a small one.
func TestASliceSmallerThanItsCount(t *testing.T) {
	g := counted()
	g.Entitlement.MemMiB = 60000
	dir := jobFolder(t, g)
	for _, given := range []request.Entitlement{{Slices: 2, MemMiB: 60000}, {Slices: 1, MemMiB: 20000}} {
		got, err := Prepare(dir, g, 0, "0", request.Request{}, &given)
		if err != nil || got.Slices[0].StepMemMiB != 3000 {
			t.Errorf("%+v: %v, %+v", given, err, got.Slices)
		}
	}
}

func readLimits(t *testing.T, dir rundir.Dir, step string) ledger.Limits {
	t.Helper()
	limits, err := ledger.ReadLimits(filepath.Join(dir.Step(12, step), ledger.LimitsFile))
	if err != nil {
		t.Fatal(err)
	}
	return limits
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/test/gpu/gauge"
)

func TestPartsArePlayedInSeveralCalls(t *testing.T) {
	all, err := chosen([]string{"smoke", "weights:2/3"})
	if err != nil || len(all) != 2 || all[0].name != "smoke" || !all[0].picks(7) {
		t.Fatalf("%+v, %v", all, err)
	}
	var picked []int
	for i := range 7 {
		if all[1].picks(i) {
			picked = append(picked, i)
		}
	}
	if len(picked) != 2 || picked[0] != 1 || picked[1] != 4 {
		t.Errorf("the second of three picks %v of 0 to 6", picked)
	}
	for _, wrong := range []string{"weight", "weights:", "weights:0/3", "weights:4/3", "weights:x"} {
		if _, err := chosen([]string{wrong}); err == nil {
			t.Errorf("%q is taken", wrong)
		}
	}
}

func TestLaunchesAreComparedRoundByRound(t *testing.T) {
	found := readLaunches(strings.Fields("native launch 100 graph 10.5 received 3 ours launch 110 graph 10.5 ours launch 220 native launch 200 done"))
	if ratio, off := ratioOf(found[native]["launch"], found[ours]["launch"]); ratio < 1.099 || ratio > 1.101 || off > 0.001 || len(found[ours]["graph"]) != 1 {
		t.Errorf("%v: %.3f times, +- %.3f", found, ratio, off)
	}
}

func TestSharesAreOfEachOthersProportion(t *testing.T) {
	for _, c := range []struct {
		had, shares []float64
		near        bool
	}{
		{[]float64{29.2, 68.5}, []float64{30, 70}, true},
		{[]float64{27, 70}, []float64{30, 70}, false},
		{[]float64{4.5, 4.6}, []float64{50, 50}, true},
		{[]float64{0, 0}, []float64{50, 50}, false},
	} {
		if near, worst := isNear(c.had, c.shares, 1); near != c.near {
			t.Errorf("%v of %v: near is %t, off by %.1f", c.had, c.shares, near, worst)
		}
	}
}

func TestALoadIsTheSameWhereTheGPUIsSimulated(t *testing.T) {
	simulated := &trial{options: options{simulated: true}}
	if got, want := simulated.command("ms=0.5 host=2 depth=4", "/b"), "vgpu-busy --for 1000000 --board /b --us 500 --rest 2000 --ahead 4"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	real := &trial{python: "python3", options: options{programs: "/p"}}
	for load, want := range map[string]string{"ms=2 depth=4": "/p/tenant file=/b ms=2 depth=4", "torch=mlp": "python3 /p/torch_tenant.py mlp /b"} {
		if got := real.command(load, "/b"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestAnOptionIsGivenOnce(t *testing.T) {
	for _, c := range []struct {
		want
		line string
	}{
		{want{share: 30}, "--gres=vgpu:1 --vgpu-place=pack --vgpu-mem=4% --vgpu-cores=30 --vgpu-policy=elastic"},
		{want{}, "--gres=vgpu:1 --vgpu-place=pack --vgpu-mem=4%"},
		{want{share: 30, options: "--vgpu-cores=10 --vgpu-mem=20%"}, "--vgpu-cores=10 --vgpu-mem=20% --gres=vgpu:1 --vgpu-place=pack"},
	} {
		if got := strings.TrimSpace(c.slice()); got != c.line {
			t.Errorf("%+v: %q, want %q", c.want, got, c.line)
		}
	}
}

func TestATenantTakesTheKernelOfAnother(t *testing.T) {
	var boards []gauge.Board
	for _, name := range []string{"/a", "/b"} {
		b, err := gauge.NewBoard(t.TempDir()+name, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		boards = append(boards, b)
	}
	for i := range 16 {
		boards[0][gauge.KernelMS+i] = byte(i + 1)
	}
	boards[0].Set(gauge.Go)
	boards[0].Set(gauge.Done)
	boards[1].LikeAnother(boards[0])
	if boards[1].KernelMS() != boards[0].KernelMS() || boards[1].Get(gauge.Loops) != boards[0].Get(gauge.Loops) {
		t.Error("its kernel is another one")
	}
	if boards[1].Get(gauge.Go) != 0 || boards[1].Done() != 0 {
		t.Error("it takes more than the kernel")
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package request

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseGRES(t *testing.T) {
	for _, c := range []struct {
		text string
		want Entitlement
	}{
		{"", Entitlement{}},
		{"vgpu:1(CNT:1)", Entitlement{Slices: 1}},
		{"vgpu(CNT:2),gpumem(CNT:3000)", Entitlement{Slices: 2, MemMiB: 3000}},
		{"gres:vgpu:2,gres:gpumem:6000", Entitlement{Slices: 2, MemMiB: 6000}},
		{"gres/vgpu=2,gres/gpumem=6000,gres/gpucores=60", Entitlement{2, 6000, 60}},
		{"gres/vgpu:2,gres/gpumem:80K", Entitlement{Slices: 2, MemMiB: 81920}},
		{"gpumem:80K(CNT:80K)", Entitlement{MemMiB: 81920}},
		{"vgpu:4(CNT:2)", Entitlement{Slices: 2}}, // 4 on all nodes, 2 here
		{"vgpu", Entitlement{Slices: 1}},
		{"vgpu:h200:2(CNT:2)", Entitlement{Slices: 2}},
		{"vgpu:h200(CNT:2)", Entitlement{Slices: 2}},
		{"gpu:h200:2(IDX:0-1,3),vgpu:1(CNT:1)", Entitlement{Slices: 1}},
		{"gpu:2(IDX:0,vgpu:9),vgpu:1", Entitlement{Slices: 1}},
		{",vgpu:1,,", Entitlement{Slices: 1}},
		{":=,gres:", Entitlement{}},
		{"gpu:2(IDX:0)),vgpu:1", Entitlement{Slices: 1}},
		{"gpu:2,shard:3,vgpux:9,xvgpu:9", Entitlement{}},
		{"vgpu:1,vgpu:2", Entitlement{Slices: 3}},
		{"vgpu:0", Entitlement{}},
		{" vgpu:1 , gpumem:5", Entitlement{Slices: 1, MemMiB: 5}},
	} {
		got, err := ParseGRES(c.text)
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", c.text, diff)
		}
	}
}

func TestParseGRESRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"vgpu:1x", `read GRES vgpu:1x: count "1x" is no number`},
		{"gpumem(CNT:)", `read GRES gpumem(CNT:): count "" is no number`},
		{"gpumem:1KK", `read GRES gpumem:1KK: count "1KK" is no number`},
		{"gpumem(CNT:-1)", `read GRES gpumem(CNT:-1): count "-1" is no number`},
		{"gpumem:8G,vgpu:1", ""},
		{"gpumem:99P", "read GRES gpumem:99P: count 99P is larger than any node has"},
		{"gpumem:9223372036854775807K", "read GRES gpumem:9223372036854775807K: count 9223372036854775807K is larger than any node has"},
		{"gpumem:" + strings.Repeat("9", 300), "read GRES gpumem:" + strings.Repeat("9", 33) + `…: count "` + strings.Repeat("9", 40) + `…" is no number`},
		{"gpumem:16G,gpumem:16G", "read GRES gpumem:16G: total is larger than any node has"},
		{"vgpu:512K,vgpu:512K", ""},
		{"vgpu:512K,vgpu:512K,vgpu:1", "read GRES vgpu:1: total is larger than any node has"},
		{"gpucores:512K,gpucores:512K", ""},
		{"gpucores:512K,gpucores:512K,gpucores:1", "read GRES gpucores:1: total is larger than any node has"},
		{strings.Repeat("a", maxGRESBytes+1), "read GRES of 65537 bytes: at most 65536 are expected"},
	} {
		_, err := ParseGRES(c.text)
		if got := errText(err); got != c.want {
			t.Errorf("%s: error is %s,\nwant %s", shorten(c.text), got, c.want)
		}
	}
}

func TestShorten(t *testing.T) {
	longest := strings.Repeat("x", 40)
	for text, want := range map[string]string{"": "", "a b": `"a b"`, longest: longest, longest + "y": longest + "…", "\x7f": `"\x7f"`} {
		if got := shorten(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestOfGPU(t *testing.T) {
	for mem, want := range map[Mem]int64{{MiB: 3000}: 3000, {}: 0, {Percent: 25}: 250, {Percent: 0.01}: 1, {Percent: 100}: 1000, {Percent: 99.99}: 999} {
		if got := mem.OfGPU(1000); got != want {
			t.Errorf("%+v of 1000 MiB are %d, want %d", mem, got, want)
		}
	}
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// The mark that gres/vgpu_parse.lua makes, as every release of Slurm prints it.
func TestMemoryThatWasTypedStandsFirst(t *testing.T) {
	for text, want := range map[string]bool{
		"gres:gpumem:50000,gres:vgpu:1":          true,
		"gres/gpumem=50000,gres/vgpu=1":          true,
		"gpu:2(IDX:0,3),gpumem:1,license:1,vgpu": true,
		"gpumem:1,vgpu:1,gpucores:30":            true,
		"gres:vgpu:1,gres:gpumem:50000":          false,
		"gres:vgpu:1,gres:gpumem:1,gres:vgpu:1":  false,
		"gpumem:50000":                           false,
		"gpumem_x:1,vgpu:1":                      false,
		"vgpu:1":                                 false,
		"":                                       false,
		"gpumem:1," + strings.Repeat("x", 70000) + ",vgpu:1": false,
	} {
		if got := MemFirst(text); got != want {
			t.Errorf("MemFirst(%.60q) is %v", text, got)
		}
	}
}

func TestLimits(t *testing.T) {
	const gpu = 143771
	for _, c := range []struct {
		what        string
		r           Request
		e           Entitlement
		mem         int64
		sm          int
		gpuIfNotStd int64
	}{
		{what: "entitlement alone", e: Entitlement{2, 6000, 60}, mem: 3000, sm: 30},
		{what: "floor", e: Entitlement{2, 6001, 61}, mem: 3000, sm: 30},
		{what: "memory alone is one slice", e: Entitlement{0, 3000, 0}, mem: 3000},
		{what: "smaller request", r: Request{Mem: Mem{MiB: 1000}, SMPercent: 10}, e: Entitlement{1, 3000, 30}, mem: 1000, sm: 10},
		{what: "the least of both", r: Request{Mem: Mem{MiB: 1}, SMPercent: 1}, e: Entitlement{1, 3000, 30}, mem: 1, sm: 1},
		{what: "forged request", r: Request{Mem: Mem{MiB: 1 << 30}, SMPercent: 100}, e: Entitlement{1, 3000, 30}, mem: 3000, sm: 30},
		{what: "forged cores without gpucores", r: Request{SMPercent: 100}, e: Entitlement{1, 3000, 0}, mem: 3000},
		{what: "percent of the landed GPU", r: Request{Mem: Mem{Percent: 25}}, e: Entitlement{1, 35942, 0}, mem: 10240, gpuIfNotStd: 40960},
		{what: "percent clamped", r: Request{Mem: Mem{Percent: 100}}, e: Entitlement{1, 3000, 0}, mem: 3000},
		{what: "tiny percent is not unlimited", r: Request{Mem: Mem{Percent: 0.0001}}, e: Entitlement{1, 3000, 0}, mem: 1},
		{what: "tiny cores are not uncapped", e: Entitlement{3, 3000, 2}, mem: 1000, sm: 1},
		{what: "whole node", e: Entitlement{1, 287542, 200}, mem: 2 * gpu, sm: 100},
		{what: "nothing", r: Request{Mem: Mem{MiB: 3000}, SMPercent: 30}},
		{what: "less than 1 MiB each", e: Entitlement{2, 1, 0}},
	} {
		gpuMiB := int64(gpu)
		if c.gpuIfNotStd != 0 {
			gpuMiB = c.gpuIfNotStd
		}
		mem, sm := Limits(c.r, c.e, gpuMiB)
		if mem != c.mem || sm != c.sm {
			t.Errorf("%s: got %d MiB and %d %%, want %d and %d", c.what, mem, sm, c.mem, c.sm)
		}
	}
}

func FuzzParseGRES(f *testing.F) {
	f.Add("gpu:h200:2(IDX:0-1,3),vgpu:1(CNT:1),gres/gpumem=80K")
	f.Add("vgpu((((,))),gpumem(CNT:9P)")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := ParseGRES(text)
		if err != nil {
			return
		}
		if e.Slices < 0 || e.MemMiB < 0 || e.SMPercent < 0 || e.MemMiB > maxMiB || e.Slices > maxSlices {
			t.Errorf("%q gives %+v", text, e)
		}
		mem, sm := Limits(Request{}, e, 100)
		if mem < 0 || sm < 0 || sm > 100 || mem > e.MemMiB {
			t.Errorf("%q limits a slice to %d MiB and %d %%", text, mem, sm)
		}
	})
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// Every Lua that Slurm links, as far as it is installed: 5.1 is what Slurm 22.05 of Debian 12 has.
func TestLua(t *testing.T) {
	for _, lua := range []string{"lua5.1", "lua5.3", "lua5.4"} {
		t.Run(lua, func(t *testing.T) {
			path, err := exec.LookPath(lua)
			if err != nil {
				t.Skipf("%s is not installed", lua)
			}
			for _, script := range []string{"vgpu_test.lua", "vgpu_whole_test.lua", "vgpu_shards_test.lua", "vgpu_sizes_test.lua", "vgpu_priority_test.lua"} {
				out, err := exec.Command(path, script, t.TempDir()).CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v:\n%s", script, err, out)
				}
				t.Log(strings.TrimSpace(string(out)))
			}
		})
	}
}

// What a user can make slurmctld search through. It counts steps, because a clock would judge the machine.
func TestLuaFuzz(t *testing.T) {
	path, err := exec.LookPath("lua5.1")
	if err != nil {
		t.Skip("lua5.1 is not installed")
	}
	out, err := exec.Command(path, "vgpu_fuzz.lua").CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
	t.Log(strings.TrimSpace(string(out)))
}

// The scripts of the plugins are loaded as Slurm loads them: they must define what it calls.
func TestLuaEntryPoints(t *testing.T) {
	path, err := exec.LookPath("lua5.1")
	if err != nil {
		t.Skip("lua5.1 is not installed")
	}
	const installed = "/usr/share/slurm-vgpu/vgpu.lua"
	for script, functions := range map[string][]string{
		"job_submit.lua": {"slurm_job_submit", "slurm_job_modify"},
		"cli_filter.lua": {"slurm_cli_setup_defaults", "slurm_cli_pre_submit", "slurm_cli_post_submit"},
	} {
		// dofile of the installed path is led here, because nothing is installed in a test.
		program := `slurm = {SUCCESS = 0}
			local real = dofile
			function dofile(path) return real(path == "` + installed + `" and "vgpu.lua" or path) end
			real("` + filepath.Base(script) + `")
			`
		for _, function := range functions {
			program += `assert(type(` + function + `) == "function", "` + function + ` is missing")
			`
		}
		if out, err := exec.Command(path, "-e", program).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", script, err, out)
		}
	}
}

// Sizes with a unit, which Go and Lua read alike.
var sizes = []string{"1.5G", "2GB", "2GiB", "2g", "3000MB", "3000MiB", "0.3G", "1.3GiB", "99.999gb", "3000.7M"}

// As GRES, which take no unit, job_submit says how many MiB a size is.
func TestLuaTellsTheMiBOfGo(t *testing.T) {
	path, err := exec.LookPath("lua5.1")
	if err != nil {
		t.Skip("lua5.1 is not installed")
	}
	program := `slurm = {SUCCESS = 0, log_user = function(format, ...) print(string.format(format, ...)) end}
		local vgpu = dofile("vgpu.lua")
		`
	var want strings.Builder
	for _, size := range sizes {
		var r request.Request
		if err := request.ParseOption("vgpu-mem", size, &r); err != nil {
			t.Fatal(err)
		}
		program += fmt.Sprintf("vgpu.job_submit({gres = %q}, {}, 0)\n", "gpumem:"+size)
		fmt.Fprintf(&want, "vgpu: --gres=gpumem:%s: gpumem counts MiB and takes no unit: write gpumem:%d\n", size, r.Mem.MiB)
	}
	if out, err := exec.Command(path, "-e", program).CombinedOutput(); err != nil || string(out) != want.String() {
		t.Errorf("%v: got\n%s\nwant\n%s", err, out, want.String())
	}
}

// What Go writes, Lua must read, and both must come to the same MiB: the canonical form of every
// option goes through job_submit, and the GRES that come out are Go's own arithmetic.
func TestLuaAgreesWithGo(t *testing.T) {
	path, err := exec.LookPath("lua5.1")
	if err != nil {
		t.Skip("lua5.1 is not installed")
	}
	folder := t.TempDir()
	program := `slurm = {SUCCESS = 0, ERROR = -1, log_user = print, log_error = print}
		local function try(mem_mib, request)
			local vgpu = dofile("vgpu.lua")
			vgpu.cluster_file = "` + folder + `/cluster.lua"
			local file = assert(io.open(vgpu.cluster_file, "w"))
			file:write('return {nodes={{names="n", gpus=3, mem_mib=' .. mem_mib .. ', type="h200"}}}')
			file:close()
			local job = {gres = "vgpu:3", spank_job_env = {[0] = "VGPU_REQUEST=" .. request}}
			vgpu.job_submit(job, {}, 0)
			print(job.gres)
		end
		`
	var want []string
	try := func(gpuMiB int64, options ...string) {
		var r request.Request
		for _, option := range options {
			name, value, _ := strings.Cut(option, "=")
			if err := request.ParseOption(name, value, &r); err != nil {
				t.Fatal(err)
			}
		}
		program += fmt.Sprintf("try(%d, %q)\n", gpuMiB, r.Encode())
		gres := fmt.Sprintf("vgpu:3,gpumem:%d", 3*r.Mem.OfGPU(gpuMiB))
		if r.SMPercent > 0 {
			gres += fmt.Sprintf(",gpucores:%d", 3*r.SMPercent)
		}
		want = append(want, gres)
	}
	for _, gpuMiB := range []int64{143771, 81559, 40960, 23034, 15360, 1} {
		for _, percent := range []string{"0.1", "1", "7.7", "12.5", "25", "29", "33.3", "33.333333333", "57", "58", "66.67", "99.9999", "100"} {
			try(gpuMiB, "vgpu-mem="+percent+"%")
		}
	}
	try(143771, "vgpu-mem=8G", "vgpu-cores=0")
	for _, size := range sizes {
		try(143771, "vgpu-mem="+size, "vgpu-cores=30%")
	}
	try(143771, "vgpu-mem=3000M", "vgpu-cores=100", "vgpu-place=spread", "vgpu-policy=elastic", "vgpu-priority=latency", "vgpu-gpu=!a100,H200", "vgpu-uuid=GPU-1b2c3d4e,!MIG-1b2c3d4e-0000")
	try(143771, "vgpu-mem=1M", "vgpu-gpu=!tesla_v100-sxm2.16gb")
	out, err := exec.Command(path, "-e", program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.Split(strings.TrimSpace(string(out)), "\n")
	for i := range want {
		if i >= len(got) || got[i] != want[i] {
			t.Fatalf("line %d of\n%s\nwant %s", i+1, out, want[i])
		}
	}
}

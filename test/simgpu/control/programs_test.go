// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"golang.org/x/sys/unix"
)

// program is one of the simulated node's, on the GPU of the driver's instance 0.
func program(t *testing.T, dir, name string, args ...string) *exec.Cmd {
	t.Helper()
	path := filepath.Join("../../../build/sim", name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("make build makes what is tried here: %v", err)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), "SIMGPU_DIR="+dir)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd
}

func begin(t *testing.T, cmd *exec.Cmd) *player {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &player{cmd: cmd, pid: cmd.Process.Pid}
}

// await is for what comes by itself.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

func TestProgramsRunOnTheRunlist(t *testing.T) {
	dir := started(t)
	busy := func(args ...string) *player {
		return begin(t, program(t, dir, "vgpu-busy", append([]string{"--device", "1", "--us", "100000", "--for", "60000"}, args...)...))
	}
	a, b := busy(), busy()
	root := newUser(dir)
	await(t, "both run", func() bool {
		had := busyOf(root, a, b)
		return had[0] > 0 && had[1] > 0
	})
	if got := shares(root, time.Second, a, b); math.Abs(got-50) > 1 {
		t.Errorf("one of two has %.2f %%", got)
	}
	await(t, "nvidia-smi says so", func() bool {
		out, err := program(t, dir, "nvidia-smi").Output()
		return err == nil && strings.Count(string(out), "vgpu-busy") == 2 && strings.Contains(string(out), "100%")
	})
	b.cmd.Process.Kill()
	b.cmd.Wait()
	await(t, "the one that was killed is off", func() bool {
		before := busyOf(root, b)[0]
		time.Sleep(20 * time.Millisecond)
		return busyOf(root, b)[0] == before
	})
	a.cmd.Process.Kill()
}

// A program that counts what is done has what the runlist says.
func TestKernelsTakeTheirTime(t *testing.T) {
	dir := started(t)
	a := begin(t, program(t, dir, "vgpu-busy", "--device", "1", "--us", "1000", "--for", "300"))
	if err := a.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	busy, _ := newUser(dir).used(theGPU, a.pid)
	if busy < 50*time.Millisecond || busy%time.Millisecond != 0 {
		t.Errorf("%v for kernels of 1 ms", busy)
	}
}

var knowsNode bool // the library knows one node in its life

func TestGPMIsTheRunlists(t *testing.T) {
	if knowsNode {
		t.Skip("once in a process")
	}
	knowsNode = true
	dir := started(t)
	t.Setenv("SIMGPU_DIR", dir)
	if _, err := os.Stat("../../../build/sim/libnvidia-ml.so.1"); err != nil {
		t.Skipf("make build makes what is tried here: %v", err)
	}
	lib := nvml.New(nvml.WithLibraryPath("../../../build/sim/libnvidia-ml.so.1"))
	if ret := lib.Init(); ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	defer lib.Shutdown()
	gpu, ret := lib.DeviceGetHandleByIndex(theGPU)
	if ret != nvml.SUCCESS {
		t.Fatal(ret)
	}
	during := func() float64 {
		samples := [2]nvml.GpmSample{}
		for i := range samples {
			samples[i], _ = lib.GpmSampleAlloc()
			defer samples[i].Free()
			if ret := gpu.GpmSampleGet(samples[i]); ret != nvml.SUCCESS {
				t.Fatal(ret)
			}
			time.Sleep(time.Duration(1-i) * 300 * time.Millisecond)
		}
		asked := nvml.GpmMetricsGetType{NumMetrics: 1, Sample1: samples[0], Sample2: samples[1]}
		asked.Metrics[0].MetricId = uint32(nvml.GPM_METRIC_GRAPHICS_UTIL)
		if ret := lib.GpmMetricsGet(&asked); ret != nvml.SUCCESS || asked.Metrics[0].NvmlReturn != uint32(nvml.SUCCESS) {
			t.Fatal(ret, asked.Metrics[0].NvmlReturn)
		}
		return asked.Metrics[0].Value
	}
	if idle := during(); idle != 0 {
		t.Errorf("%.2f %% where nobody is", idle)
	}
	a, root := played(t, dir), newUser(dir)
	await(t, "the counter has moved", func() bool {
		_, active := root.used(theGPU, a.pid)
		return active > 100*time.Millisecond
	})
	if full := during(); full < 99 || full > 100.01 {
		t.Errorf("%.2f %% where somebody always has work", full)
	}
}

// What a cheat gains is what an H200 showed.
func TestACheatGains(t *testing.T) {
	dir := started(t, "devices=2")
	root := newUser(dir)
	kernels := []string{"--device", "1", "--us", "100000", "--for", "60000"}
	honest := begin(t, program(t, dir, "vgpu-busy", kernels...))
	cheat := begin(t, program(t, dir, "vgpu-cheat", append([]string{"slice"}, kernels...)...))
	await(t, "the cheat has the GPU", func() bool { return shares(root, 100*time.Millisecond, cheat, honest) > 99 })
	cheat.cmd.Process.Kill()
	cheat.cmd.Wait()
	raw := begin(t, program(t, dir, "vgpu-cheat", "raw"))
	await(t, "NVML shows who uses no library", func() bool {
		out, err := program(t, dir, "nvidia-smi").Output()
		return err == nil && strings.Contains(string(out), "vgpu-cheat")
	})
	await(t, "its kernels run", func() bool {
		busy, _ := root.used(0, raw.pid)
		return busy > 0
	})
}

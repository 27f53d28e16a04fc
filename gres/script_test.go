// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) != "vgpu-gres" { // a test, which mounts what builds are kept in
		privatemounts.Enter()
	}
	testscript.Main(m, map[string]func(){"vgpu-gres": main})
}

// The scripts run the command as an admin would. Each has a folder with a config.yaml of its own.
func TestScripts(t *testing.T) {
	simulated, err := filepath.Abs("../build/sim/libnvidia-ml.so.1")
	if err != nil {
		t.Fatal(err)
	}
	_, simErr := os.Stat(simulated)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			env.Setenv("SIM", simulated)
			env.Setenv("SIMGPU_DIR", "")
			return os.WriteFile(filepath.Join(env.WorkDir, "config.yaml"), fmt.Appendf(nil,
				"run_dir: %[1]s/run\nspool_dir: %[1]s/spool\nnvml_library: %[1]s/none.so\nslurm: {scontrol: %[1]s/none}\n", env.WorkDir), 0o644)
		},
		Condition: func(cond string) (bool, error) {
			if cond == "simgpu" { // the simulated library is built
				return simErr == nil, nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"inventory": writeInventory, "code": expectCode},
	})
}

// writeInventory is `inventory [boot]`: an inventory.json of this boot, or of another one, with three GPUs.
func writeInventory(ts *testscript.TestScript, _ bool, args []string) {
	boot, err := inventory.BootID()
	ts.Check(err)
	if len(args) > 0 {
		boot = args[0]
	}
	ts.Check(os.MkdirAll(ts.MkAbs("run"), 0o755))
	ts.Check(inventory.Write(ts.MkAbs("run/inventory.json"), device.Inventory{
		BootID: boot, DriverVersion: "580.1", CUDAVersion: 13000,
		GPUs: []device.GPU{
			{UUID: "GPU-a", PCIBusID: "00000000:01:00.0", Name: "NVIDIA H200", Type: "h200", MemMiB: 143771},
			{UUID: "GPU-b", Index: 1, Minor: 1, PCIBusID: "00000000:02:00.0", Name: "NVIDIA H200", Type: "h200", MemMiB: 143771},
			{UUID: "GPU-c", Index: 2, Minor: 2, PCIBusID: "00000000:03:00.0", Name: "NVIDIA A100-SXM4-80GB", Type: "a100", MemMiB: 81920, Lost: "MIG mode is on"},
		},
	}))
}

// expectCode is `code N command…`: the command must end with exactly this exit code.
func expectCode(ts *testscript.TestScript, _ bool, args []string) {
	want := args[0]
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = strconv.Itoa(exit.ExitCode())
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %s, want %s", got, want)
	}
}

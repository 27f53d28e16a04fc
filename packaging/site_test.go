// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A node of Slurm's, with names that must not be in the report.
var sitePrograms = map[string]string{
	"hostname":   "echo secret17.example.org",
	"slurmd":     "echo slurm 24.11.5",
	"scontrol":   `case $1 in show) printf 'ClusterName = classified\nSlurmctldHost[0] = hidden1(10.0.0.1)\nSelectType = select/cons_tres\nTaskPlugin = task/cgroup,hidden1,hidden1\n' ;; *) exit 1 ;; esac`,
	"systemctl":  "echo systemd 252 on secret17",
	"nvidia-smi": "echo 'the driver is not loaded' >&2; exit 9",
	"sacctmgr":   "exit 1",
}

func siteReport(t *testing.T, env ...string) string {
	t.Helper()
	programs := t.TempDir()
	for name, text := range sitePrograms {
		if err := os.WriteFile(filepath.Join(programs, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(programs, "config.yaml") // or the real ones are asked, by their paths
	text := "run_dir: DIR/run\nspool_dir: DIR/spool\nslurm: {scontrol: DIR/scontrol, squeue: DIR/sacctmgr, sacct: DIR/sacctmgr, sacctmgr: DIR/sacctmgr}\n"
	if err := os.WriteFile(config, []byte(strings.ReplaceAll(text, "DIR", programs)), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("./site-report.sh", "--config", config)
	command.Env = append(append(os.Environ(), "PATH="+programs+":"+os.Getenv("PATH")), env...)
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, found := range regexp.MustCompile(`secret17|hidden1|classified|GPU-[0-9a-f]{8}-`).FindAllString(string(out), -1) {
		t.Errorf("%q is in the report", found)
	}
	for _, line := range []string{"kernel: Linux", "Slurm: slurm 24.11.5", "slurm.conf: SelectType = select/cons_tres", "slurm.conf: TaskPlugin = task/cgroup,HOST,HOST",
		"GPU: FAILED (9): the driver is not loaded", "end of the report"} {
		if !strings.Contains(string(out), "\n"+line) {
			t.Errorf("there is no line %q", line)
		}
	}
	if t.Failed() {
		t.Logf("%s", out)
	}
	return string(out)
}

// A part that fails ends nothing.
func TestASiteReportRunsToItsEnd(t *testing.T) {
	sim, err := filepath.Abs("../build/sim")
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"sim/libcuda.so.1", "vgpu-gres", "vgpuctl", "libslurm-vgpu.so"} {
		if _, err := os.Stat("../build/" + program); err != nil {
			t.Skip("not built")
		}
	}
	t.Run("without a GPU", func(t *testing.T) {
		if out := siteReport(t, "LD_LIBRARY_PATH="); !strings.Contains(out, "\ninventory: FAILED (1): ") || !strings.Contains(out, "\nmemory: FAILED: ") {
			t.Errorf("it does not say what failed:\n%s", out)
		}
	})
	t.Run("with simulated GPUs", func(t *testing.T) {
		state, err := os.MkdirTemp("", "vgpu-site") // t.TempDir is closed to the program, which has another user
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(state) })
		if err := os.Chmod(state, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, library := range []string{"libcuda.so.1", "libnvidia-ml.so.1"} { // the tree may be in a home
			content, err := os.ReadFile(filepath.Join(sim, library))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(state, library), content, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command(sim+"/simgpu-init", state, "devices=1").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		out := siteReport(t, "LD_LIBRARY_PATH="+state, "SIMGPU_DIR="+state)
		if !strings.Contains(out, "\ninventory: 0 ") {
			t.Errorf("no GPU was found:\n%s", out)
		}
		if os.Geteuid() == 0 && !strings.Contains(out, "\nmemory, GPU 0, limit 2000 MiB: held at most 2000 MiB, by the driver: exact\n") {
			t.Errorf("the limit was not tried:\n%s", out)
		}
	})
}

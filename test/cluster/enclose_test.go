// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// up starts a plain cluster with jobs that try to get away from it, and returns when they run.
func up(t *testing.T, program string) (cmd *exec.Cmd, home Home) {
	t.Helper()
	cmd = exec.Command(program, "run", "-plain", "--",
		`sbatch --wrap "setsid sleep 98765 & env -i setsid sleep 98765"`, "srun sleep 98765")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		for _, h := range homes() {
			for _, id := range recorded(h.Path(pidsFile))["outer"] {
				if id.pid == cmd.Process.Pid {
					home = h
				}
			}
		}
		if home != "" && sleepers(home) >= 3 {
			return cmd, home
		}
		if time.Now().After(end) {
			_ = cmd.Process.Kill()
			t.Fatalf("it does not come up:\n%s", &out)
		}
	}
}

// sleepers counts the cluster's processes that are a job's sleep.
func sleepers(home Home) (n int) {
	for _, id := range marked(string(home)) {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", id.pid))
		if strings.HasSuffix(string(line), "sleep\x0098765\x00") && !strings.HasPrefix(string(line), "srun") {
			n++
		}
	}
	return n
}

func mainOf(t *testing.T, keeper int) (pid int) {
	t.Helper()
	for _, id := range descendants(keeper) {
		if _, parent, _ := identify(id.pid); parent == keeper && isProgram(id.pid) {
			return id.pid
		}
	}
	t.Fatal("keeper has no main process")
	return 0
}

func isProgram(pid int) bool {
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return filepath.Base(exe) == "vgpu-cluster"
}

// TestNothingIsLeft ends a cluster in every way that it can be ended.
func TestNothingIsLeft(t *testing.T) {
	program := filepath.Join(t.TempDir(), "vgpu-cluster")
	if out, err := exec.Command(cmp.Or(os.Getenv("GO"), "go"), "build", "-buildvcs=false", "-o", program, "./vgpu-cluster").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tc := range []struct {
		who string
		sig unix.Signal
	}{
		{"outer", unix.SIGINT}, {"outer", unix.SIGTERM}, {"outer", unix.SIGKILL}, {"keeper", unix.SIGKILL},
		{"main", unix.SIGKILL}, {"all", unix.SIGKILL},
	} {
		t.Run(fmt.Sprintf("%v to %s", tc.sig, tc.who), func(t *testing.T) {
			cmd, home := up(t, program)
			ids := recorded(home.Path(pidsFile))
			if home.InPlace() && tc.who != "outer" && tc.sig == unix.SIGKILL {
				defer func() { _ = ClearStale() }()
			}
			keeper := ids["keeper"][0].pid
			pids := map[string][]int{"outer": {cmd.Process.Pid}, "keeper": {keeper}, "main": {mainOf(t, keeper)}}
			pids["all"] = []int{cmd.Process.Pid, keeper, pids["main"][0]}
			for _, pid := range pids[tc.who] {
				if err := unix.Kill(pid, tc.sig); err != nil {
					t.Fatal(err)
				}
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it says that all went well")
			}
			if tc.who == "all" {
				// Nobody was left to clear up; the next start does, once the killed have ended.
				awaitEnd(t, keeper, pids["main"][0])
				if err := ClearStale(); err != nil {
					t.Error(err)
				}
			}
			for end := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
				left := marked(string(home))
				if len(left) == 0 && !isDir(string(home)) {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("left: processes %v, folder %v", left, isDir(string(home)))
				}
			}
		})
	}
}

// awaitEnd waits for processes that were killed, which are not children of this one.
func awaitEnd(t *testing.T, pids ...int) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		var left []int
		for _, pid := range pids {
			if _, _, alive := identify(pid); alive {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v were killed and have not ended", left)
		}
	}
}

func TestTwoClustersSideBySide(t *testing.T) {
	program := filepath.Join(t.TempDir(), "vgpu-cluster")
	if out, err := exec.Command(cmp.Or(os.Getenv("GO"), "go"), "build", "-buildvcs=false", "-o", program, "./vgpu-cluster").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	one, first := up(t, program)
	two, second := up(t, program)
	if first == second {
		t.Error("they share a folder")
	}
	for _, cmd := range []*exec.Cmd{one, two} {
		_ = cmd.Process.Signal(unix.SIGTERM)
	}
	_, _ = one.Process.Wait()
	_, _ = two.Process.Wait()
	for _, home := range []Home{first, second} {
		if left := marked(string(home)); len(left) > 0 || isDir(string(home)) {
			t.Errorf("%s: left are %v", home, left)
		}
	}
}

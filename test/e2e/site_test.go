// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// doctor and check ask the real Slurm, and say so when it does not answer.
func TestDoctorSaysThatSlurmIsDown(t *testing.T) {
	doctor := func() string { return run(t, root, tool("n1", "doctor")).Stdout }
	for _, said := range []string{"ok    slurmctld: it answers", "ok    slurmdbd: it answers", "ok    machine: n1 is a controller and a compute node",
		"ok    GresTypes: ", "ok    Prolog: ", "  cluster.lua: "} {
		if got := doctor(); !strings.Contains(got, said) {
			t.Errorf("%s is missing in\n%s", said, got)
		}
	}
	got := run(t, root, "vgpu-gres --config "+c.ConfigPath()+" --node n1 check -v")
	for line := range strings.Lines(got.Stdout) {
		// The machine's own MariaDB is not the cluster's.
		if strings.Contains(line, " -> ") && !strings.Contains(line, ": warning: ") && !strings.HasPrefix(line, "database: ") {
			t.Errorf("check: %s", line)
		}
	}
	if !strings.Contains(got.Stdout, "slurmctld: ok: it answers") {
		t.Errorf("check: %s", got)
	}
	for daemon, says := range map[string]string{"slurmdbd": "fail  slurmdbd: it does not answer", "slurmctld": "fail  slurmctld: it does not answer"} {
		if err := c.StopDaemon(daemon, syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		got := run(t, root, tool("n1", "doctor"))
		if err := c.StartDaemon(daemon); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got.Stdout, says) || got.Code != 1 {
			t.Errorf("without %s: %s", daemon, got)
		}
	}
	until(t, "Slurm to answer again", 2*time.Minute, func() error {
		if got := doctor(); !strings.Contains(got, "ok    slurmctld: ") || !strings.Contains(got, "ok    slurmdbd: ") {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	// A user is not told of files that are root's alone.
	if got := run(t, one, tool("n1", "status")); strings.Contains(got.String(), "permission denied") {
		t.Errorf("status of a user: %s", got)
	}
	if got := ok(t, one, "srun --gres=vgpu:1 --vgpu-mem=1000 echo works"); !strings.Contains(got.Stdout, "works") {
		t.Error(got)
	}
}

// TestRemovalIsRefusedWhileSlurmUsesIt: the packages' script asks before they go, and Slurm's own srun says what it loads where no other
// program of ours is.
func TestRemovalIsRefusedWhileSlurmUsesIt(t *testing.T) {
	begin(t)
	settle(t) // slices of a job's would be refused for first
	source, err := filepath.Abs("../../packaging/packages/preremove.sh")
	if err != nil {
		t.Fatal(err)
	}
	asked := func(before string) string {
		t.Helper()
		got := run(t, root, before+"SLURMD_NODENAME=n1 sh "+source+" remove")
		if got.Code != 1 {
			t.Errorf("not refused: %s", got)
		}
		return got.String()
	}
	got := asked("")
	for _, line := range []string{"/spank_vgpu.so", ": Prolog=", ": Epilog="} {
		if !strings.Contains(got, line) {
			t.Errorf("%s is not named: %s", line, got)
		}
	}
	if got := asked("PATH=/usr/bin:/bin "); !strings.Contains(got, "srun loads spank_vgpu.so") {
		t.Errorf("with the plugin's package alone: %s", got)
	}
}

// TestANodeThatDrainsForACount: slurmctld has new counts and slurmd the older ones, as after a restart in the wrong order. The checks name the
// node and the remedy, which is the one that heals it; in the right order nothing drains.
func TestANodeThatDrainsForACount(t *testing.T) {
	begin(t)
	settle(t)
	t.Cleanup(func() {
		inOrder(t)
		_ = run(t, root, "for node in "+strings.Join(c.Nodes, " ")+"; do scontrol update nodename=$node state=resume; done")
		if err := c.AwaitIdle(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for name, from := range map[string]string{"slurm.conf": `(Gres=\S*vgpu:)80\b`, "gres.conf": `(Name=vgpu\b.* Count=)80\b`} {
		count := regexp.MustCompile(from)
		replaced(t, c.Home.Path("etc", name), func(text string) string { return count.ReplaceAllString(text, "${1}90") })
	}
	daemon(t, "slurmctld", true)
	const says = "count reported lower than configured"
	until(t, "the node to drain", time.Minute, func() error {
		if got := ok(t, root, "scontrol -o show node n1").Stdout; !strings.Contains(got, says) {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
	for _, line := range []string{tool("n1", "doctor"), "vgpu-gres --config " + c.ConfigPath() + " --node n1 check"} {
		got := run(t, root, line)
		if !strings.Contains(got.Stdout, says) || !strings.Contains(got.Stdout, "restart slurmd there, then scontrol update nodename=n1 state=resume") || got.Code != 1 {
			t.Errorf("%s", got)
		}
	}
	daemon(t, "n1", true)
	until(t, "the remedy to heal it", time.Minute, func() error {
		_ = run(t, root, "scontrol update nodename=n1 state=resume") // of a node that is idle already it is an error
		if got := ok(t, root, "sinfo -h -n n1 -o '%T %E'").Stdout; !strings.HasPrefix(got, "idle") {
			return fmt.Errorf("%s", got)
		}
		return nil
	})
}

// daemon ends one, and starts it again if it is to run.
func daemon(t *testing.T, name string, starts bool) {
	t.Helper()
	err := c.StopDaemon(name, syscall.SIGTERM)
	if err == nil && starts {
		err = c.StartDaemon(name)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// inOrder has Slurm read its files in the order of README.
func inOrder(t *testing.T) {
	t.Helper()
	daemon(t, "slurmctld", false)
	for _, node := range c.Nodes {
		daemon(t, node, true)
	}
	daemon(t, "slurmctld", true)
}

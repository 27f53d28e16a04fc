// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
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

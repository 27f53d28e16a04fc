// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package drained_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/drained"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// controller keeps a node's state and reason in two files, as slurmctld does, and says what it was asked in a third.
const controller = `#!/bin/sh
cd "$(dirname "$0")" || exit 1
case "$1" in
-o) echo "NodeName=$4 Arch=x86_64 OS=Linux 6.1 State=$(cat state) ThreadsPerCore=1 Partitions=p BootTime=2026-11-27T04:00:00 $(cat reason)Comment=State=DRAIN";;
update)
	echo "$*" >> asked
	case "$3" in
	State=DRAIN) echo MIXED+DRAIN > state; shift 3; echo "$* [root@2026-11-27T04:35:08] " > reason;;
	State=RESUME) echo IDLE > state; : > reason;;
	esac;;
esac
`

func TestANodeIsDrainedOnceAndGivenBackIfTheReasonIsStillOurs(t *testing.T) {
	for _, tt := range []struct {
		name          string
		state, reason string // before
		meanwhile     string // the reason that somebody gives meanwhile
		cause         drained.Cause
		want          string // what the controller was asked
	}{
		{"idle", "IDLE", "", "", drained.GPUsUnknown, "DRAIN RESUME"},
		{"without a network", "IDLE*", "", "", drained.GPUsUnknown, "DRAIN RESUME"},
		{"drained by an administrator", "IDLE+DRAIN", "Reason=cables [ann@2026-11-27T04:35:08] ", "", drained.GPUsUnknown, ""},
		{"draining, without a reason", "ALLOCATED+DRAIN*", "", "", drained.GPUsUnknown, ""},
		{"with a reason from before, and in use", "IDLE", "Reason=was slow [ann@2026-11-27T04:35:08] ", "", drained.GPUsUnknown, "DRAIN RESUME"},
		{"with another reason by now", "IDLE", "", "Reason=cables [ann@2026-11-27T04:35:08] ", drained.GPUsUnknown, "DRAIN"},
		{"with ours and more", "IDLE", "", "Reason=vgpu: the node.s GPUs are not known: so: and cables [ann@2026-11-27T04:35:08] ", drained.GPUsUnknown, "DRAIN"},
		{"by one that was killed before it could remember", "IDLE+DRAIN", "Reason=vgpu: the node.s GPUs are not known: so [root@2026-11-27T04:35:08] ", "", drained.GPUsUnknown, "RESUME"},
		{"for another cause", "IDLE", "", "", drained.ConfigUnknown, "DRAIN"},
	} {
		dir := t.TempDir()
		write := func(name, text string, mode os.FileMode) {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
				t.Fatal(err)
			}
		}
		write("scontrol", controller, 0o755)
		write("state", tt.state, 0o644)
		write("reason", tt.reason, 0o644)
		client := slurm.Client{Scontrol: filepath.Join(dir, "scontrol"), Timeout: 10 * time.Second}
		spool := rundir.Spool(filepath.Join(dir, "spool"))
		for range 2 {
			if _, err := drained.Node(t.Context(), client, spool, "n1", tt.cause, "so"); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
		}
		if tt.meanwhile != "" {
			write("reason", tt.meanwhile, 0o644)
		}
		for range 2 {
			if _, err := drained.Resume(t.Context(), client, spool, "n1", drained.GPUsUnknown); err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
		}
		asked, _ := os.ReadFile(filepath.Join(dir, "asked"))
		var got []string
		for line := range strings.Lines(string(asked)) {
			got = append(got, strings.TrimPrefix(strings.Fields(line)[2], "State="))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: asked for %v, want %s", tt.name, got, tt.want)
		}
	}
}

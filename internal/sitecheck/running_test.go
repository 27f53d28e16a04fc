// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestANodeThatDrainsForACount: lines as slurmctld 24.11 printed them, of a node whose slurmd was restarted after slurmctld, or not at all.
func TestANodeThatDrainsForACount(t *testing.T) {
	const heals = " -> restart slurmd there, then scontrol update nodename=n1 state=resume"
	for end, want := range map[string]string{
		"State=IDLE Weight=1": "",
		"State=IDLE+DRAIN+INVALID_REG Weight=1 Reason=gres/vgpu count reported lower than configured (0 < 20) [slurm@2026-11-27T08:40:00]": "node state: Slurm sends no job to n1 (IDLE+DRAIN+INVALID_REG): gres/vgpu count reported lower than configured (0 < 20)" + heals,
		"State=IDLE+DRAIN Weight=1 Reason=gres/vgpu count reported lower than configured (0 < 20) [slurm@2026-11-27T08:40:00]":             "node state: Slurm sends no job to n1 (IDLE+DRAIN): gres/vgpu count reported lower than configured (0 < 20)" + heals,
		"State=IDLE+DRAIN Weight=1 Reason=upgrade [root@2026-11-27T08:40:00]":                                                              "warning: Slurm sends no job to n1 (IDLE+DRAIN): upgrade -> scontrol update nodename=n1 state=resume, when what it says is over",
		"State=DOWN* Weight=1 Reason=Not responding [slurm@2026-11-27T08:40:00]":                                                           "warning: Slurm sends no job to n1 (DOWN): Not responding -> scontrol update nodename=n1 state=resume, when what it says is over",
		"State=IDLE+NOT_RESPONDING Weight=1": "warning: Slurm sends no job to n1 (IDLE+NOT_RESPONDING): its slurmd does not answer -> see that slurmd runs there and slurmctld reaches it",
	} {
		site, dir := goodSite(t)
		scontrol := filepath.Join(dir, "scontrol")
		conf := "GresTypes = vgpu,gpumem,gpucores"
		write(t, scontrol, "#!/bin/sh\ncase \"$*\" in 'show config') echo '"+conf+"' ;; *) echo 'NodeName=n1 Arch=x86_64 Gres=vgpu:20,gpumem:287542,gpucores:200 OS=Linux "+end+"' ;; esac\n")
		site.Running = AskSlurm(t.Context(), scontrol, site.SlurmConf, "n1")
		all, err := site.Check()
		if err != nil {
			t.Fatal(err)
		}
		got := "nobody has looked"
		for _, f := range all {
			switch {
			case f.Check != "node state":
			case f.Warning:
				got = "warning: " + f.Says + " -> " + f.Remedy
			case f.OK:
				got = ""
			default:
				got = f.Check + ": " + f.Says + " -> " + f.Remedy
			}
		}
		if diff := cmp.Diff(want, strings.ReplaceAll(got, dir, "DIR")); diff != "" {
			t.Errorf("%s: %s", end, diff)
		}
	}
}

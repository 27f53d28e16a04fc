// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// slicesOf21 is the check on node n08, where job 21 runs: scontrol 22.05.8 says vgpu:2,gpumem:81920 of it.
func slicesOf21(t *testing.T, entitled request.Entitlement, granted, held []device.Slice, squeue string) string {
	t.Helper()
	dir := t.TempDir()
	program := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	record, err := filepath.Abs("../internal/slurm/testdata/two-nodes.txt")
	if err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.RunDir = dir + "/run"
	cfg.Slurm.Scontrol, cfg.Slurm.Squeue = program("scontrol", "cat "+record), program("squeue", squeue)
	store := state.Of(cfg, "b", hclog.NewNullLogger())
	tx, err := store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.End()
	g := grant.Grant{Job: 21, BootID: "b", Node: "n08", Since: time.Now(), Entitlement: entitled, Slices: granted}
	if len(held) > 0 {
		tx.Put(21, state.OfGrant(grant.Grant{Job: 21, Slices: held}))
	}
	if len(granted) > 0 {
		if err := os.MkdirAll(store.Dir.Job(21), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := grant.Write(store.Dir.Grant(21), g); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	d := doctor{config: cfg, node: "n08", bootID: "b"}
	d.slices(t.Context())
	var out strings.Builder
	printFindings(&out, d.Findings)
	return out.String()
}

func TestSlicesAreHeldAgainstSlurm(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("the check needs root")
	}
	has := request.Entitlement{Slices: 2, MemMiB: 81920}
	both := []device.Slice{{Device: "GPU-a", MemMiB: 40960}, {Device: "GPU-b", MemMiB: 40960}}
	more := []device.Slice{{Device: "GPU-a", MemMiB: 40961}, both[1]}
	const runs, began = "echo '21|1000'", "date +'21|%s'"
	for name, tc := range map[string]struct {
		entitled      request.Entitlement
		granted, held []device.Slice
		squeue, want  string
	}{
		"agrees":           {has, both, both, runs, "ok    slices: 2 slices here, as Slurm has allocated them\n"},
		"nothing here":     {has, nil, nil, runs, "fail  slices: 1 job of 1 that run here differ from what Slurm has allocated: job 21 has vgpu:2,gpumem:81920,gpucores:0 and holds nothing here -> its programs find no GPU: scontrol requeue 21"},
		"begins":           {has, nil, nil, began, "ok    slices: 0 slices here"},
		"not in the state": {has, both, nil, runs, "job 21 runs and is not in the state file -> vgpuctl sweep\n"},
		"half of it":       {has, both, both[:1], runs, "job 21 has vgpu:2,gpumem:81920,gpucores:0 and holds 1 slice -> scontrol requeue 21"},
		"changed in Slurm": {request.Entitlement{Slices: 2, MemMiB: 2}, both, both, runs, "job 21 has vgpu:2,gpumem:81920,gpucores:0 by now and was granted for vgpu:2,gpumem:2,gpucores:0 -> vgpuctl set 21"},
		"changed by root":  {has, more, more, runs, "as Slurm has allocated them; changed by `vgpuctl set`: those of 1 job\n"},
		"no answer":        {has, both, both, "exit 1", "warn  slices: not compared with what Slurm has allocated: ask for the jobs of node n08: "},
		"no number":        {has, both, both, "echo '21|Unknown'", "warn  slices: not compared with what Slurm has allocated: ask for the jobs of node n08: squeue printed"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := slicesOf21(t, tc.entitled, tc.granted, tc.held, tc.squeue); !strings.Contains(got, tc.want) {
				t.Errorf("doctor says\n%swant\n%s", got, tc.want)
			}
		})
	}
}

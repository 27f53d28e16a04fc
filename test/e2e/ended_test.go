// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a job had is worth nothing when it is over, to its own user neither, who keeps its pages in a namespace of a later job.
func TestAnEndedJobsPagesAreWorthNothing(t *testing.T) {
	needStrict(t)
	begin(t)
	ended, release := holding(t, one, "--gres=vgpu:1 --vgpu-mem=50000 --vgpu-cores=50")
	awaitState(t, ended, "RUNNING")
	signs := openDir(t)
	if err := os.Chmod(signs, 0o777); err != nil {
		t.Fatal(err)
	}
	covered := `set -e; mount --make-rprivate /
		for self in /run/slurm-vgpu/self /dev/slurm-vgpu; do
			mount --bind ` + runDir("jobs", ended, "steps", "batch") + `/limits $self/limits
			for f in ledger claims; do mount --bind $self/turns/` + ended + `/$f $self/turns/$SLURM_JOB_ID/$f; done
		done
		set +e
		vgpu-busy --until ` + signs + `/never & busy=$!
		until nvidia-smi | grep -q "[1-9][0-9]*MiB /"; do kill -0 $busy || break; sleep 0.1; done; kill -0 $busy && touch ` + signs + `/covered
		while [ ! -e ` + signs + `/ended ]; do sleep 0.1; done
		for i in {1..50}; do kill -0 $busy || break; sleep 0.1; done
		kill $busy && echo STILL BUSY; wait $busy; echo ENDED WITH $?
		vgpu-fill; echo COVERED`
	later := submit(t, one, "--gres=vgpu:1 --vgpu-mem=3000 --vgpu-cores=10", "exec 2>&1\nunshare --user --map-root-user --mount bash -c '"+covered+"'\ntrue")
	await(t, filepath.Join(signs, "covered"))
	release()
	finish(t, one, ended)
	awaitEnd(t, ended)
	if err := os.WriteFile(filepath.Join(signs, "ended"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	out := finish(t, one, later)
	if !strings.Contains(out, "COVERED") || !strings.Contains(out, "NOT_PERMITTED") || !strings.Contains(out, "ENDED WITH") || strings.Contains(out, "STILL BUSY") {
		t.Errorf("want the pages covered, who used them ended, and CUDA refused:\n%s", out)
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/test/privatemounts"
)

// TestMountsWithoutNumberStopNobody: a user has filled mount namespaces of his own with copies of the folder in which each job's pages
// are mounted, from a job without a slice and from one with, again when that helped no more, and with copies of all that there is.
func TestMountsWithoutNumberStopNobody(t *testing.T) {
	needStrict(t)
	begin(t)
	script := filepath.Join(openDir(t), "copies.sh")
	executable(t, script, "#!/bin/sh\n"+privatemounts.Copies)
	for i, tc := range []struct{ options, folder string }{{"", runDir("pages")}, {"--gres=vgpu:1 --vgpu-mem=100M", runDir("pages")}, {"", runDir("pages")}, {"", "/"}} {
		full := filepath.Join(one.Home, fmt.Sprint("full", i))
		_ = os.Remove(full)
		job := submit(t, one, tc.options, "unshare --user --map-root-user --mount --propagation unchanged "+script+" "+tc.folder+" "+full)
		until(t, "copies without number", time.Minute, func() error {
			info, err := os.Stat(full)
			if err == nil && info.Size() == 0 {
				return os.ErrNotExist
			}
			return err
		})
		if out := batch(t, two, "--gres=vgpu:1 --vgpu-mem=3000", "vgpu-fill"); took(t, out) < 2000 {
			t.Errorf("a neighbour got:\n%s", out)
		}
		t.Cleanup(func() {
			_ = os.Remove(full)
			finish(t, one, job)
		})
	}
	nodeIsUp(t)
}

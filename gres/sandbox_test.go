// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// TestPrepareBuildsWhereNothingMayBeMounted: the unit that writes the inventory at boot may not mount, and says nothing of what prologs can.
// Who may mount and finds the folder noexec all the same says so.
func TestPrepareBuildsWhereNothingMayBeMounted(t *testing.T) {
	if dir := os.Getenv("VGPU_TEST_PREPARE"); dir != "" {
		prepareBuilds(os.Stdout, config.Config{RunDir: dir})
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("a file system has to be mounted")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		before string
		says   bool
	}{
		"may not mount":             {"exec setpriv --bounding-set=-sys_admin --inh-caps=-sys_admin", false},
		"what is mounted is noexec": {"mount -t tmpfs -o noexec,mode=755 builds \"$1/" + filepath.Base(rundir.Dir("/x").Builds()) + "\"; exec", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			cmd := exec.Command("unshare", "--mount", "sh", "-c", "mount -t tmpfs -o noexec,mode=755 run \"$1\" && mkdir -m 755 \"$1/builds\" && "+tc.before+" \"$2\" -test.run '^"+t.Name()[:strings.Index(t.Name(), "/")]+"$'", "sh", dir, program)
			cmd.Env = append(os.Environ(), "VGPU_TEST_PREPARE="+dir)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), "noexec") != tc.says {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"cmp"
	"os"
	"strings"
	"testing"
)

// apptainer is the start of a command of the one that VGPU_TEST_APPTAINER names, or that is in PATH.
func apptainer(t *testing.T) string {
	t.Helper()
	program := cmp.Or(os.Getenv("VGPU_TEST_APPTAINER"), "apptainer")
	need(t, one, program, program+" --version")
	// What it binds has no devices, which real GPUs have in /dev: here the GPUs are without their nodes.
	exec := program + " exec " + given("-B %s:%s ")
	devices := c.Home.Path("sim", "simgpu.d")
	return strings.Replace(exec, devices+":/gpus", devices+"/state:/gpus/state -B "+devices+"/simgpu.conf:/gpus/simgpu.conf", 1)
}

func TestApptainer(t *testing.T) {
	exec := apptainer(t)
	begin(t)
	folder := image(t, one)
	// Without what the plugin has set.
	bare := "env -u APPTAINER_BIND -u SINGULARITY_BIND " + exec
	try(t, one, "touch empty", []attempt{
		{"nothing configured", bare + folder, "", limited},
		{"the plugin's binds", exec + folder, "", limited},
		{"no environment", exec + "--cleanenv " + folder, "", limited},
		{"writable", exec + "--writable-tmpfs " + folder, "", limited},
		{"contained", exec + "-C " + folder, "", limited},
		{"contained, without the binds", bare + "-C " + folder, "", noCUDA},
		{"no dev, without the binds", bare + "--no-mount dev,bind-paths " + folder, "", noCUDA},
		{"an own file over the preload", exec + "-B ./empty:/etc/ld.so.preload " + folder, "", limited},
		{"an own folder over ours", "mkdir -p nothing; " + bare + "-B ./nothing:/dev/slurm-vgpu " + folder, "", noCUDA},
		{"its root takes mounts away", exec + "--fakeroot " + folder, uncover, limited},
	})
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
)

// EnrootFolder is the configuration of enroot, where it is installed.
const EnrootFolder = "/etc/enroot"

// EnrootRemedy has containers of enroot, and so of Pyxis, take the step's folder and its preload along. Its fstab is installed there.
const EnrootRemedy = "install -D -m 644 /usr/share/slurm-vgpu/containers/enroot.fstab " + EnrootFolder + "/mounts.d/50-slurm-vgpu.fstab"

// enroot: without these mounts a container with a /dev of its own has no CUDA, and the user can have one without limits by an option.
func (c *site) enroot() {
	if info, err := os.Stat(c.Enroot); c.Enroot == "" || err != nil || !info.IsDir() || !c.Config.IsStrict() {
		return
	}
	const check = "enroot"
	files, err := filepath.Glob(filepath.Join(c.Enroot, "mounts.d", "*.fstab"))
	if err != nil {
		c.Bad(check, EnrootRemedy, "%v", err)
		return
	}
	missing := []string{rundir.Self, "/etc/ld.so.preload"}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			c.Bad(check, "make it readable", "%v", err)
			return
		}
		for line := range strings.Lines(string(text)) { // fstab(5): what, where, …
			if cells := strings.Fields(line); len(cells) > 1 && !strings.HasPrefix(cells[0], "#") {
				missing = slices.DeleteFunc(missing, func(target string) bool { return cells[0] == target && cells[1] == target })
			}
		}
	}
	if len(missing) > 0 {
		c.Bad(check, EnrootRemedy, "no file in %s/mounts.d mounts %s: containers of enroot and Pyxis with a /dev of their own have no CUDA, and an option of the user's opens others",
			c.Enroot, strings.Join(missing, " and "))
		return
	}
	c.OK(check, "containers of enroot and Pyxis take their step's folder along")
}

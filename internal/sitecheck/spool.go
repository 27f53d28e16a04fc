// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"os"
	"path/filepath"
)

// spoolDir holds the folder of slurmd's sockets, by which prologs and sweeps see which jobs live, against where slurmd has it. Slurm's own
// answer comes first: each distribution builds another default into it (Debian: /var/lib/slurm/slurmd).
func (c *site) spoolDir() {
	const check = "SlurmdSpoolDir"
	conf := c.file
	if c.Running != nil && c.Running.Err == nil {
		conf = c.Running.Config
	}
	value, at, ok := conf.Value(check)
	if !ok {
		return
	}
	onNode := func(dir string) string {
		cfg := c.Config
		cfg.Slurm.SlurmdSpoolDir = dir
		return filepath.Clean(cfg.ForNode(c.Node).Slurm.SlurmdSpoolDir)
	}
	has, ours := onNode(value), onNode(c.Config.Slurm.SlurmdSpoolDir)
	if has == ours || sameFolder(has, ours) {
		c.OK(check, "slurmd has its sockets in %s", ours)
		return
	}
	c.Bad(check, "config.yaml: slurm: {slurmd_spool_dir: "+value+"}", "%s: slurmd has its sockets in %s, and slurm-vgpu looks for them in %s: vgpuctl sweep does not work, and prologs ask the controller which jobs live",
		at.Place(), has, ours)
}

func sameFolder(a, b string) bool {
	one, err := os.Stat(a)
	if err != nil {
		return false
	}
	two, err := os.Stat(b)
	return err == nil && os.SameFile(one, two)
}

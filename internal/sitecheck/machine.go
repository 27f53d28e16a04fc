// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// roles are what this machine is to Slurm: a controller, a compute node, both, or a place where users submit jobs.
type roles struct{ controller, compute bool }

func (c *site) roles() (r roles) {
	r.controller = c.onController()
	r.compute = c.computes(c.file)
	switch {
	case r.controller && r.compute:
		c.OK("machine", "%s is a controller and a compute node", c.Node)
	case r.controller:
		c.OK("machine", "%s is a controller and has no slices: the checks of a node are left out", c.Node)
	case r.compute:
		c.OK("machine", "%s is a compute node", c.Node)
	default:
		c.OK("machine", "%s has neither GPUs nor a NodeName= line: as a login node it needs the plugin, and no more is looked at", c.Node)
	}
	return r
}

// computes says whether jobs run on this machine, as far as that is known.
func (s Site) computes(conf slurmconf.File) bool {
	_, _, named := conf.Node(s.Node)
	return named || s.IsNode || s.Inventory != nil || s.Running != nil && s.Running.NodeGRES != ""
}

// Computes is the same for those who have not read slurm.conf; where it cannot be read, jobs may run here.
func (s Site) Computes() bool {
	conf, err := slurmconf.Read(s.SlurmConf)
	return err != nil || s.computes(conf)
}

// onController says whether slurm.conf names this machine as a controller and is the one that the controller reads.
func (c *site) onController() bool {
	host, err := os.Hostname()
	if err != nil || c.sent() {
		return false
	}
	short, _, _ := strings.Cut(host, ".")
	for _, key := range []string{"slurmctldhost", "controlmachine", "backupcontroller"} {
		for _, line := range c.file.All(key) {
			name, _, _ := strings.Cut(line.Pairs[0].Value, "(")
			if name == short || name == host {
				return true
			}
		}
	}
	return false
}

// configFolder: whoever can write the folder can put another config.yaml there, and vgpuctl reads it as its user.
func (c *site) configFolder() {
	if c.ConfigDir == "" {
		return
	}
	info, err := os.Stat(c.ConfigDir)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	remedy := "chown root:root " + c.ConfigDir + " && chmod 755 " + c.ConfigDir
	if err != nil {
		c.Warn("config folder", remedy, "%v", err)
		return
	}
	owner, _ := info.Sys().(*syscall.Stat_t)
	switch {
	case owner != nil && owner.Uid != 0 && int(owner.Uid) != os.Geteuid():
		c.Bad("config folder", remedy, "%s belongs to uid %d, who can replace config.yaml", c.ConfigDir, owner.Uid)
	case info.Mode()&0o022 != 0:
		c.Bad("config folder", remedy, "%s has mode %#o: others than root can replace config.yaml", c.ConfigDir, info.Mode().Perm())
	case info.Mode()&0o005 != 0o005:
		c.Bad("config folder", remedy, "%s has mode %#o: vgpuctl of a user and slurmctld cannot read what is in it", c.ConfigDir, info.Mode().Perm())
	}
}

// HasGPUs says whether the machine has device files of GPUs.
func HasGPUs(cfg config.Config) bool {
	files, err := filepath.Glob(filepath.Join(cfg.DeviceDir, "nvidia[0-9]*"))
	return err == nil && len(files) > 0
}

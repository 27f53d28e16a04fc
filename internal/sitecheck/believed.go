// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import "github.com/slurm-vgpu/slurm-vgpu/internal/config"

// ConfigFile says whether config.yaml can be used, and what holds where it cannot.
func ConfigFile(path string, held config.Held) []Finding {
	const check = "config"
	var c Report
	for _, problem := range held.Problems {
		remedy := "correct it; jobs go on by the copy meanwhile, and `vgpuctl config` prints it"
		if held.Standing == config.Unknown {
			remedy = "correct it; a node with GPUs drains with the next job"
		}
		c.Bad(check, remedy, "%v; %s", problem, held.Holds())
	}
	switch {
	case len(held.Problems) > 0:
	case held.IsFile:
		c.OK(check, "%s is valid", path)
	default:
		c.OK(check, "%s is not there: defaults are in effect", path)
	}
	return c.Findings
}

// drain says of each name in drain which GPU it is for. One file for all nodes may name GPUs of others.
func (c *site) drain() {
	const check = "drain"
	if c.Inventory == nil && len(c.Config.Drain) > 0 {
		c.Warn(check, "vgpu-gres inventory --write", "not checked: the node's GPUs are not known")
		return
	}
	for _, name := range c.Config.Drain {
		switch named := config.Drained(name, *c.Inventory); len(named) {
		case 0:
			c.Warn(check, "config.yaml: a UUID as nvidia-smi -L prints it, or 8 characters of it after GPU- at least", "%s is no GPU of this node: it drains nothing here", name)
		case 1:
			c.OK(check, "%s gets no new slices", named[0])
		default:
			c.Warn(check, "config.yaml: more of the UUID", "%s is the beginning of %d UUIDs, and none of these GPUs gets new slices", name, len(named))
		}
	}
}

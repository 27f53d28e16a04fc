// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import "github.com/slurm-vgpu/slurm-vgpu/internal/config"

// ConfigFile says whether config.yaml is believed, and what holds where it is not.
func ConfigFile(path string, held config.Held) []Finding {
	const check = "config"
	var c report
	for _, problem := range held.Problems {
		remedy := "correct it; jobs go on by the copy meanwhile, and `vgpuctl config` prints it"
		if held.Standing == config.Unknown {
			remedy = "correct it; a node with GPUs drains with the next job"
		}
		c.bad(check, remedy, "%v; %s", problem, held.Holds())
	}
	switch {
	case len(held.Problems) > 0:
	case held.IsFile:
		c.ok(check, "%s is valid", path)
	default:
		c.ok(check, "%s is not there: defaults are in effect", path)
	}
	return c.findings
}

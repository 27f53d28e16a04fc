// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// taken says which text of its files Slurm would not take: no daemon starts then.
func (c *site) taken() {
	const remedy = "write it as Key=Value, quotes around a value with blanks, Include at the beginning of its line"
	for _, left := range c.file.Untaken {
		c.Bad("slurm.conf", remedy, "%s: Slurm does not take %q, and its daemons do not start", left.Place, shortened(left.Text))
	}
	for _, line := range c.file.Lines {
		if len(line.Pairs) > 1 && !slices.Contains(recordKeys, line.Pairs[0].Key) {
			second := line.Pairs[1]
			c.Bad("slurm.conf", "one setting on each line", "%s: Slurm does not take %q, and its daemons do not start", line.Place(), shortened(second.Name+"="+second.Value))
		}
	}
}

// lastCounts are the settings of which vgpu-gres prints a line, and of which Slurm takes the last line alone.
var lastCounts = []string{"GresTypes", "PrologFlags", "JobSubmitPlugins", "AccountingStorageType", "AccountingStorageTRES"}

// twice says which setting a line below replaces, as when what is printed is pasted under what a site has.
func (c *site) twice() {
	for _, key := range lastCounts {
		lines := slices.DeleteFunc(c.file.All(key), func(line slurmconf.Line) bool { return line.Pairs[0].Append })
		if len(lines) < 2 {
			continue
		}
		first, last := lines[0], lines[len(lines)-1]
		c.Warn("slurm.conf", "one line for "+key+", with what both are to say", "%s and %s: %s stands there twice: Slurm takes the last alone, and every daemon and command logs an error",
			first.Place(), last.Place(), key)
	}
}

// recordKeys begin the lines of slurm.conf that hold more than one setting.
var recordKeys = []string{"nodename", "partitionname", "nodeset", "downnodes", "frontendname"}

func shortened(text string) string {
	const most = 60
	if len(text) > most {
		return text[:most] + "…"
	}
	return text
}

// gresForm says which lines of gres.conf slurmd ends itself over: what is about some nodes begins with NodeName= (gres.c reads the
// rest by it).
func (c *site) gresForm(file slurmconf.File) {
	for _, left := range file.Untaken {
		c.Bad("gres.conf", "write it as Key=Value", "%s: Slurm does not take %q, and slurmd does not start", left.Place, shortened(left.Text))
	}
	for _, line := range file.Lines {
		if _, has := line.Get("nodename"); has && line.Pairs[0].Key != "nodename" {
			c.Bad("gres.conf", "put NodeName= first on that line", "%s: NodeName= stands behind %s=, and slurmd does not start with that", line.Place(), line.Pairs[0].Name)
		}
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// FirstWithShards is the first release that does not give a GPU to one job as gres/gpu and shards of it to another at the same time (NEWS of
// 23.11.5).
const FirstWithShards = "23.11.5"

// CountsShards says that a Slurm keeps shards and whole GPUs apart; a version that is not known does not.
func CountsShards(version string) bool { return parseVersion(version) >= parseVersion(FirstWithShards) }

// ShardLines are the lines of gres.conf for a node on which Slurm picks the GPUs: a shard for each MiB that may be granted.
func ShardLines(node, deviceDir string, inv device.Inventory, memOvercommit float64) (lines []string) {
	lines = WholeGPULines(node, deviceDir, inv)
	for _, run := range byMinor(inv) {
		for _, gpu := range run {
			lines = append(lines, fmt.Sprintf("NodeName=%s Name=shard Count=%d File=%s", node, gpu.GrantableMiB(memOvercommit), deviceFile(deviceDir, int(gpu.Minor))))
		}
	}
	return lines
}

// ShardCounts are the same in Gres= of slurm.conf.
func ShardCounts(inv device.Inventory, memOvercommit float64) string {
	total := int64(0)
	for _, gpu := range inv.GPUs {
		total += gpu.GrantableMiB(memOvercommit)
	}
	return fmt.Sprintf("%s,%s:%d", WholeGPUCounts(inv), request.GRESShard, total)
}

func deviceFile(dir string, minor int) string {
	return filepath.Join(dir, "nvidia"+strconv.Itoa(minor))
}

var (
	offersShard = pattern.Late(`(?i)(?:^|,)\s*shard(?::|,|$)`)
	// shardsInScript is the line of a site's job_submit.lua; without one the table of nodes decides.
	shardsByJob      = pattern.Late(`(?m)^[^-\n]*\bshards\s*=\s*function`)
	noShardsInScript = pattern.Late(`(?m)^[^-\n]*\bshards\s*=\s*false`)
)

// couldPick says that Slurm counts by node here and could pick the GPUs itself.
func (c *site) couldPick() {
	if c.Config.Shards || c.Config.ShardsSaid || !CountsShards(c.Version) {
		return
	}
	c.Warn("shards", `"Move a site over to shards" in docs/whole-gpus.md; shards: false in config.yaml keeps counts, and ends this warning`,
		"Slurm %s can pick the GPU of each slice, by shards; by counts it sends jobs to nodes where no GPU has room, and these wait", c.Version)
}

// pickedBySlurm checks shards: Slurm counts every GPU and every MiB of it, and nothing else picks GPUs.
func (c *site) pickedBySlurm(gres slurmconf.File, constrains bool) {
	before := len(c.Findings)
	if c.Version != "" && !CountsShards(c.Version) {
		c.Bad("shards", "upgrade Slurm, or shards: false in config.yaml", "Slurm %s can give a GPU and shards of it to two jobs at once; %s is the first that does not", c.Version, FirstWithShards)
	}
	c.shardFiles(gres)
	c.shardSelection()
	if script, err := readText(c.JobSubmit); err == nil && strings.Contains(script, "vgpu") && noShardsInScript().MatchString(script) {
		c.Bad("shards", "job_submit.lua: vgpu.shards = true", "%s: shards is on in config.yaml and not in the script, so that no job with slices has shards", c.JobSubmit)
	}
	if len(c.Config.Drain) > 0 {
		c.Bad("shards", "config.yaml: drain: []; drain the node in Slurm", "drain keeps slices from a GPU that Slurm goes on giving out")
	}
	if len(c.Findings) > before {
		return
	}
	c.OK("shards", "Slurm picks the GPUs of node %s, for slices by shards of one MiB", c.Node)
	if constrains {
		c.OK("ConstrainDevices", "jobs can open the GPUs that Slurm picked for them")
	} else {
		c.OK("ConstrainDevices", "it is off: mounts alone keep jobs from GPUs that are not theirs")
	}
}

// shardFiles checks gres.conf and Gres= of the node.
func (c *site) shardFiles(gres slurmconf.File) {
	remedy := "gres.conf: the lines that vgpu-gres gres.conf prints on the node"
	if c.Inventory != nil {
		remedy = "gres.conf: " + strings.Join(ShardLines(c.Node, c.Config.DeviceDir, *c.Inventory, c.Config.MemOvercommit), "; ")
	}
	minors, lines := c.slurmsFiles(gres)
	switch {
	case len(lines) == 0:
		c.Bad("shards", remedy, "%s: shards is on, and no line with Name=gpu is about node %s", c.GresConf, c.Node)
	case c.Inventory != nil && !slices.Equal(minors, allMinors(c.Inventory)):
		c.Bad("shards", remedy, "%s: every GPU of the node belongs into gres/gpu, by its device file and in order: Slurm numbers them so", lines[0].Place())
	}
	shards := gres.GRES(request.GRESShard, c.Node)
	if len(shards) == 0 {
		c.Bad("shards", remedy, "%s: shards is on, and no line with Name=shard is about node %s", c.GresConf, c.Node)
	} else if c.Inventory != nil {
		c.shardCounts(shards, remedy)
	}
	values, at, _ := c.slurm.Node(c.Node)
	if !offersGPU().MatchString(values["gres"]) || !offersShard().MatchString(values["gres"]) {
		c.Bad("shards", "slurm.conf: add gpu and shard to this node's Gres=, as vgpu-gres slurm.conf prints it", "%s: shards is on, and node %s does not offer both gpu and shard", at.Place(), c.Node)
	}
}

// shardCounts checks that each GPU has a line of its own with one shard for each MiB.
func (c *site) shardCounts(lines []slurmconf.Line, remedy string) {
	counted := make(map[int]bool)
	for _, line := range lines {
		file, _ := line.Get("file")
		count, _ := line.Get("count")
		for _, gpu := range c.Inventory.GPUs {
			if file != deviceFile(c.Config.DeviceDir, int(gpu.Minor)) {
				continue
			}
			counted[int(gpu.Minor)] = true
			if want := gpu.GrantableMiB(c.Config.MemOvercommit); count != strconv.FormatInt(want, 10) {
				c.Bad("shards", remedy, "%s: Name=shard Count=%s of %s: one shard is one MiB, and this GPU has %d", line.Place(), count, file, want)
			}
		}
	}
	for _, n := range allMinors(c.Inventory) {
		if !counted[n] {
			c.Bad("shards", remedy, "%s: no line with Name=shard is about %s alone", lines[0].Place(), deviceFile(c.Config.DeviceDir, n))
		}
	}
}

// shardSelection checks how Slurm selects.
func (c *site) shardSelection() {
	types := c.slurm.Words("GresTypes")
	if !slices.Contains(types, request.GRESGPU) || !slices.Contains(types, request.GRESShard) {
		c.Bad("shards", "slurm.conf: GresTypes=gpu,shard,vgpu,gpumem,gpucores", "%s: GresTypes lacks gpu or shard", c.slurm.Path)
	}
	if slices.Contains(c.slurm.Words("SelectTypeParameters"), "multiple_sharing_gres_pj") {
		c.Bad("shards", "slurm.conf: take MULTIPLE_SHARING_GRES_PJ out of SelectTypeParameters",
			"%s: with MULTIPLE_SHARING_GRES_PJ Slurm cuts a slice into shards of several GPUs, and such a job is refused on the node", c.slurm.Path)
	}
	have := c.slurm.Words("AccountingStorageTRES")
	if !slices.Contains(have, "gres/gpu") || !slices.Contains(have, "gres/shard") {
		c.Bad("shards", "slurm.conf: add gres/gpu,gres/shard to AccountingStorageTRES", "%s: AccountingStorageTRES lacks gres/gpu or gres/shard: sacct does not show it", c.slurm.Path)
	}
}

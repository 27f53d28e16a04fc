// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// gresNames are the GRES that a node needs, in the order of Counts.
var gresNames = []string{request.GRESSlices, request.GRESMem, request.GRESCores}

func (c Counts) of(name string) int64 {
	switch name {
	case request.GRESSlices:
		return int64(c.Slices)
	case request.GRESMem:
		return c.MemMiB
	}
	return int64(c.Cores)
}

func (c *site) gresTypes() {
	have := c.slurm.Words("GresTypes")
	var missing []string
	for _, name := range gresNames {
		if !slices.Contains(have, name) {
			missing = append(missing, name)
		}
	}
	if missing == nil {
		c.OK("GresTypes", "GresTypes names %s", strings.Join(gresNames, ", "))
		return
	}
	c.Bad("GresTypes", "slurm.conf: GresTypes="+strings.Join(append(have, missing...), ","),
		"%s: GresTypes lacks %s", c.slurm.Path, strings.Join(missing, ", "))
}

// selectType: select/linear gives a job whole nodes (slurm.conf(5)). The usual one differs by release: a file without one is not judged.
func (c *site) selectType() {
	const check, want = "SelectType", "select/cons_tres"
	value, _, ok := c.slurm.Value("SelectType")
	switch {
	case strings.EqualFold(value, want):
		c.OK(check, "SelectType is %s", want)
	case ok:
		c.Bad(check, "slurm.conf: SelectType="+want, "%s: SelectType is %s, under which slices do not share a node", c.slurm.Path, value)
	}
}

// nodeLine checks Gres= of the node's line in slurm.conf.
func (c *site) nodeLine() {
	values, at, ok := c.slurm.Node(c.Node)
	if !ok && c.Running != nil && c.Running.NodeGRES != "" { // as slurmd -Z makes one
		values, at, ok = map[string]string{"gres": c.Running.NodeGRES}, slurmconf.Line{File: "scontrol show node " + c.Node}, true
	}
	if !ok {
		c.Bad("node", fmt.Sprintf("slurm.conf: NodeName=%s … Gres=%s", c.Node, c.wanted()),
			"%s: no NodeName= line is about node %s", c.slurm.Path, c.Node)
		return
	}
	if lines := c.slurm.NodeLines(c.Node); len(lines) > 1 {
		c.Bad("node", "one line: NodeName="+c.Node+" … Gres="+c.wanted(), "%s: node %s has a line at %s already, and no daemon of Slurm starts with both", at.Place(), c.Node, lines[0].Place())
		return
	}
	counts := gresCounts(values["gres"])
	before := len(c.Findings)
	for _, name := range gresNames {
		text, has := counts[name]
		if !has {
			c.Bad("node", fmt.Sprintf("slurm.conf: NodeName=%s … Gres=%s", c.Node, c.wanted()), "%s: Gres= of node %s has no %s", at.Place(), c.Node, name)
			continue
		}
		c.count("node", at.Place()+": Gres="+name+":"+text, name, text, "slurm.conf: NodeName="+c.Node+" … Gres="+c.wanted())
	}
	if len(c.Findings) == before {
		c.offered("node", fmt.Sprintf("node %s offers %s", c.Node, values["gres"]))
	}
}

// gresCounts are the numbers of ours in Gres= of a node, as they are written.
func gresCounts(gres string) map[string]string {
	counts := make(map[string]string)
	for item := range strings.SplitSeq(gres, ",") {
		fields := strings.Split(strings.TrimSpace(item), ":")
		// name[:type][:no_consume]:count
		if slices.Contains(gresNames, strings.ToLower(fields[0])) {
			counts[strings.ToLower(fields[0])] = fields[len(fields)-1]
			if len(fields) == 1 {
				counts[strings.ToLower(fields[0])] = "1"
			}
		}
	}
	return counts
}

// offered says that numbers are there, and right where the node's GPUs are known.
func (c *site) offered(check, says string) {
	if c.Inventory == nil {
		c.Warn(check, "vgpu-gres inventory --write, on the node", "%s; whether it has so many was not looked at: its GPUs are not known", says)
		return
	}
	c.OK(check, "%s", says)
}

func (c *site) wanted() string {
	if c.Inventory == nil {
		return "vgpu:…,gpumem:…,gpucores:… (vgpu-gres slurm.conf prints the numbers on the node)"
	}
	return c.want.String()
}

// count compares a number as it is written with the one that the node has.
func (c *site) count(check, where, name, text, remedy string) {
	digits := strings.TrimRight(text, "KMGTPkmgtp")
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		c.Bad(check, remedy, "%s: %q is no count", where, text)
		return
	}
	suffix := text[len(digits):]
	if suffix != "" {
		// 8G would be 8·2^30 MiB.
		if name == request.GRESMem {
			c.Bad(check, remedy, "%s: the unit of gpumem is MiB already, and Slurm multiplies by 1024 for each step of a suffix; write the number of MiB", where)
			return
		}
		c.Bad(check, remedy, "%s: write the number without a suffix", where)
		return
	}
	if c.Inventory == nil || n == c.want.of(name) {
		return
	}
	want := c.want.of(name)
	if name == request.GRESMem && n > 0 && want > 0 {
		for unit, per := range map[string]float64{"GiB": 1024, "KiB": 1.0 / 1024, "bytes": 1.0 / (1 << 20)} {
			if ratio := float64(want) / (float64(n) * per); ratio > 0.9 && ratio < 1.1 {
				c.Bad(check, remedy, "%s: that looks like %s; the unit of gpumem is MiB, and this node has %d", where, unit, want)
				return
			}
		}
	}
	c.Bad(check, remedy, "%s: this node has %d (%d GPUs, slices_per_gpu %d, mem_overcommit %g)", where, want,
		c.want.Cores/100, c.Config.SlicesPerGPU, c.Config.MemOvercommit)
}

func (c *site) gresConf() {
	file, err := readOptional(c.GresConf)
	if err != nil {
		c.Bad("gres.conf", "make it readable", "%v", err)
		return
	}
	before := len(c.Findings)
	c.gresForm(file)
	for _, name := range gresNames {
		line := fmt.Sprintf("%s: NodeName=%s Name=%s Count=%d Flags=CountOnly", c.GresConf, c.Node, name, c.want.of(name))
		if c.Inventory == nil {
			line = "vgpu-gres gres.conf prints the line on the node"
		}
		lines := file.GRES(name, c.Node)
		if len(lines) == 0 {
			c.Bad("gres.conf", line, "%s: no line with Name=%s is about node %s", c.GresConf, name, c.Node)
			continue
		}
		if len(lines) > 1 {
			c.Bad("gres.conf", "keep one of them", "%s and %s: two lines with Name=%s are about node %s; Slurm adds them up",
				lines[0].Place(), lines[1].Place(), name, c.Node)
		}
		for _, at := range lines {
			if path, has := at.Get("file"); has {
				c.Bad("gres.conf", line, "%s: Name=%s has File=%s; %s is a number and has no device", at.Place(), name, path, name)
			}
			if flags, _ := at.Get("flags"); !hasWord(flags, "countonly") {
				c.Bad("gres.conf", line, "%s: Name=%s lacks Flags=CountOnly, so every daemon looks for a plugin gres_%s.so", at.Place(), name, name)
			}
			count, has := at.Get("count")
			if !has {
				c.Bad("gres.conf", line, "%s: Name=%s has no Count=", at.Place(), name)
				continue
			}
			c.count("gres.conf", at.Place()+": Name="+name+" Count="+count, name, count, line)
		}
	}
	if len(c.Findings) == before {
		c.offered("gres.conf", fmt.Sprintf("%s counts %s on node %s", c.GresConf, strings.Join(gresNames, ", "), c.Node))
	}
}

// wholeGPUs is about GPUs that Slurm itself hands out on the same node.
func (c *site) wholeGPUs() {
	if c.Config.WholeGPUs || c.Config.Shards || len(c.Config.SlurmGPUs) > 0 {
		c.besideSlices()
		return
	}
	values, at, _ := c.slurm.Node(c.Node)
	var own []string
	for item := range strings.SplitSeq(values["gres"], ",") {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(item)), ":")
		if (name == "gpu" || name == "shard" || name == "mps") && !slices.Contains(own, "gres/"+name) {
			own = append(own, "gres/"+name)
		}
	}
	if own == nil {
		c.OK("whole GPUs", "node %s has no gres/gpu, gres/shard or gres/mps beside vgpu", c.Node)
	} else {
		c.Bad("whole GPUs", "slurm.conf: take gpu, shard and mps out of this node's Gres=, or say in config.yaml whose GPUs they are: shards, whole_gpus or slurm_gpus",
			"%s: node %s offers %s as well; Slurm does not know that these are the same GPUs as vgpu's and gives each out twice", at.Place(), c.Node, strings.Join(own, " and "))
	}
	cgroup, err := readOptional(c.CgroupConf)
	if err != nil {
		c.Bad("ConstrainDevices", "make it readable", "%v", err)
		return
	}
	_, where, _ := cgroup.Value("ConstrainDevices")
	gres, err := readOptional(c.GresConf)
	if err != nil {
		return // said above
	}
	if c.constrains(cgroup) {
		for _, name := range []string{"gpu", "shard", "mps"} {
			for _, line := range gres.GRES(name, c.Node) {
				_, file := line.Get("file")
				auto, _ := line.Get("autodetect")
				if file || auto != "" && !strings.EqualFold(auto, "off") {
					c.Bad("ConstrainDevices", "gres.conf: take the devices of gres/"+name+" away on this node, or cgroup.conf: ConstrainDevices=no",
						"%s and %s: a job with vgpu but without gres/%s may open none of these devices", where.Place(), line.Place(), name)
					return
				}
			}
		}
	}
	c.OK("ConstrainDevices", "no device of this node is withheld from jobs with vgpu")
}

// constrains says whether Slurm keeps a job from devices that it was not given.
func (c *site) constrains(cgroup slurmconf.File) bool {
	constrain, _, _ := cgroup.Value("ConstrainDevices")
	return strings.EqualFold(constrain, "yes") && hasWord(strings.Join(c.slurm.Words("TaskPlugin"), ","), "task/cgroup", "cgroup")
}

// besideSlices is about whole GPUs of which config.yaml says whose they are.
func (c *site) besideSlices() {
	cgroup, err := readOptional(c.CgroupConf)
	if err != nil {
		c.Bad("ConstrainDevices", "make it readable", "%v", err)
		return
	}
	gres, err := readOptional(c.GresConf)
	if err != nil {
		return // said by gresConf
	}
	switch constrains := c.constrains(cgroup); {
	case c.Config.Shards:
		c.pickedBySlurm(gres, constrains)
		return
	case c.Config.WholeGPUs:
		c.placedWhole(gres, constrains)
		return
	}
	c.splitGPUs(gres)
}

// hasWord looks for a word in a comma list, whatever its case.
func hasWord(list string, words ...string) bool {
	for have := range strings.SplitSeq(list, ",") {
		for _, word := range words {
			if strings.EqualFold(strings.TrimSpace(have), word) {
				return true
			}
		}
	}
	return false
}

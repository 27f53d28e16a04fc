// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
)

// byMinor are the node's GPUs in the order of their device files, those of one type that follow each other together.
func byMinor(inv device.Inventory) (runs [][]device.GPU) {
	gpus := slices.SortedFunc(slices.Values(inv.GPUs), func(a, b device.GPU) int { return cmp.Compare(a.Minor, b.Minor) })
	for i, gpu := range gpus {
		if i == 0 || gpus[i-1].Type != gpu.Type || gpus[i-1].Minor+1 != gpu.Minor {
			runs = append(runs, nil)
		}
		runs[len(runs)-1] = append(runs[len(runs)-1], gpu)
	}
	return runs
}

// WholeGPULines are the lines of gres.conf for whole GPUs that the prolog places.
func WholeGPULines(node, deviceDir string, inv device.Inventory) (lines []string) {
	for _, run := range byMinor(inv) {
		number := strconv.Itoa(int(run[0].Minor))
		if len(run) > 1 {
			number = fmt.Sprintf("[%d-%d]", run[0].Minor, run[len(run)-1].Minor)
		}
		line := fmt.Sprintf("NodeName=%s Name=gpu File=%s Flags=nvidia_gpu_env", node, filepath.Join(deviceDir, "nvidia"+number))
		if run[0].Type != "" {
			line = strings.Replace(line, " File=", " Type="+run[0].Type+" File=", 1)
		}
		lines = append(lines, line)
	}
	return lines
}

// WholeGPUCounts are the same GPUs in Gres= of slurm.conf.
func WholeGPUCounts(inv device.Inventory) string {
	var names []string
	counts := make(map[string]int)
	for _, run := range byMinor(inv) {
		name := "gpu"
		if run[0].Type != "" {
			name += ":" + run[0].Type
		}
		if counts[name] == 0 {
			names = append(names, name)
		}
		counts[name] += len(run)
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%s:%d", name, counts[name])
	}
	return strings.Join(names, ",")
}

// slurmsFiles are the device files that gres.conf gives to gres/gpu on the node, and the minors among them.
func (c *site) slurmsFiles(gres slurmconf.File) (minors []int, lines []slurmconf.Line) {
	for _, line := range gres.GRES(request.GRESGPU, c.Node) {
		lines = append(lines, line)
		files, _ := line.Get("file")
		for _, gpu := range allMinors(c.Inventory) {
			if slurm.HostlistContains(files, filepath.Join(c.Config.DeviceDir, "nvidia"+strconv.Itoa(gpu))) {
				minors = append(minors, gpu)
			}
		}
	}
	return minors, lines
}

func allMinors(inv *device.Inventory) (minors []int) {
	if inv == nil {
		return nil
	}
	for _, gpu := range inv.GPUs {
		minors = append(minors, int(gpu.Minor))
	}
	slices.Sort(minors)
	return minors
}

var offersGPU = pattern.Late(`(?i)(?:^|,)\s*gpu(?:[:,]|$)`)

// wholeInScript is the line of a site's job_submit.lua.
var wholeInScript = pattern.Late(`(?m)^[^-\n]*whole_gpus\s*=\s*(?:true|function)`)

func readText(path string) (string, error) {
	text, err := os.ReadFile(path)
	return string(text), err
}

// placedWhole checks whole_gpus: every GPU stands in gres.conf, Slurm does not bar it from slices, and job_submit.lua counts it.
func (c *site) placedWhole(gres slurmconf.File, constrains bool) {
	before := len(c.Findings)
	minors, lines := c.slurmsFiles(gres)
	want := "vgpu-gres gres.conf prints the lines on the node"
	if c.Inventory != nil {
		want = strings.Join(WholeGPULines(c.Node, c.Config.DeviceDir, *c.Inventory), "; ")
	}
	if len(lines) == 0 {
		c.Bad("whole GPUs", "gres.conf: "+want+", or whole_gpus: false in config.yaml", "%s: whole_gpus is on, and no line with Name=gpu is about node %s", c.GresConf, c.Node)
	} else if c.Inventory != nil && !slices.Equal(minors, allMinors(c.Inventory)) {
		c.Bad("whole GPUs", "gres.conf: "+want, "%s: with whole_gpus every GPU of the node belongs into gres/gpu, by its device file and in order", lines[0].Place())
	}
	values, at, _ := c.slurm.Node(c.Node)
	if !offersGPU().MatchString(values["gres"]) {
		c.Bad("whole GPUs", "slurm.conf: add gpu to this node's Gres=, as vgpu-gres slurm.conf prints it", "%s: whole_gpus is on, and node %s offers no gpu", at.Place(), c.Node)
	}
	if constrains {
		c.Bad("whole GPUs", "cgroup.conf: ConstrainDevices=no on this node; slurm-vgpu masks what is not a job's own", "%s: ConstrainDevices=yes lets a job open the GPUs that Slurm numbered, which may be others than those it has", c.CgroupConf)
	}
	if script, err := readText(c.JobSubmit); err == nil && strings.Contains(script, "vgpu") && !wholeInScript().MatchString(script) {
		c.Bad("whole GPUs", "job_submit.lua: vgpu.whole_gpus = true", "%s: whole_gpus is on in config.yaml and not in the script, so that Slurm sends whole GPUs where slices are", c.JobSubmit)
	}
	if more := gres.GRES(request.GRESShard, c.Node); len(more) > 0 {
		c.Bad("whole GPUs", "config.yaml: shards: true in place of whole_gpus, or gres.conf: the lines of vgpu-gres gres.conf --counts", "%s: node %s has gres/shard, and whole_gpus is on: vgpu-prolog refuses jobs with shards", more[0].Place(), c.Node)
	}
	if c.Config.Isolation != "strict" {
		c.Bad("whole GPUs", "config.yaml: isolation: strict", "isolation is %s: jobs are not kept from GPUs that are not theirs", c.Config.Isolation)
	}
	if len(c.Findings) == before {
		c.OK("whole GPUs", "gres/gpu of node %s are placed by slurm-vgpu", c.Node)
	}
}

// splitGPUs checks slurm_gpus: what Slurm hands out and what slices are placed on are different GPUs, and together all.
func (c *site) splitGPUs(gres slurmconf.File) {
	if c.Inventory == nil {
		c.Warn("slurm_gpus", "vgpu-gres inventory --write", "not checked: the node's GPUs are not known")
		return
	}
	before := len(c.Findings)
	minors, lines := c.slurmsFiles(gres)
	where := c.GresConf
	if len(lines) > 0 {
		where = lines[0].Place()
	}
	for _, n := range allMinors(c.Inventory) {
		file := filepath.Join(c.Config.DeviceDir, "nvidia"+strconv.Itoa(n))
		switch slurms, left := slices.Contains(minors, n), slices.Contains(c.Config.SlurmGPUs, n); {
		case slurms && !left:
			c.Bad("slurm_gpus", fmt.Sprintf("config.yaml: add %d to slurm_gpus, or take the file out of gres.conf", n), "%s: Slurm hands out %s, and slices are placed on it as well", where, file)
		case left && !slurms:
			c.Bad("slurm_gpus", fmt.Sprintf("gres.conf: NodeName=%s Name=gpu File=%s, or take %d out of slurm_gpus in config.yaml", c.Node, file, n), "%s: no job can get %s: slurm_gpus leaves it to Slurm, but no line of gres/gpu has it", where, file)
		}
	}
	for _, n := range c.Config.SlurmGPUs {
		if !slices.Contains(allMinors(c.Inventory), n) {
			c.Bad("slurm_gpus", fmt.Sprintf("config.yaml: take %d out of slurm_gpus", n), "this node has no %s", filepath.Join(c.Config.DeviceDir, "nvidia"+strconv.Itoa(n)))
		}
	}
	for _, name := range []string{"shard", "mps"} {
		if more := gres.GRES(name, c.Node); len(more) > 0 {
			c.Bad("slurm_gpus", "gres.conf: take gres/"+name+" of this node away", "%s: gres/%s of Slurm's own GPUs was not tried; with shards: true Slurm picks the GPUs of slices by gres/shard", more[0].Place(), name)
		}
	}
	if len(c.Findings) == before {
		c.OK("slurm_gpus", "Slurm hands out %d GPUs of node %s, slices are placed on the other %d", len(minors), c.Node, len(c.Inventory.GPUs)-len(minors))
	}
}

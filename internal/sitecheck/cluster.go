// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package sitecheck

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurmconf"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// ClusterFile is the table of nodes on the controller, where job_submit.lua names no other.
const ClusterFile = "/etc/slurm-vgpu/cluster.lua"

// Where distributions have an interpreter of the Lua that Slurm links.
var interpreters = []string{"/usr/bin/lua5.4", "/usr/bin/lua5.3", "/usr/bin/lua5.1", "/usr/bin/lua", "/usr/bin/luajit"}

var (
	clusterInScript = pattern.Late(`(?m)^[^-\n]*cluster_file\s*=\s*["']([^"'\n]+)["']`)
	ourScripts      = pattern.Late(`(?m)^[^-\n]*dofile\s*\(?\s*["']([^"'\n]*)/vgpu\.lua["']`)
)

// tableRow is a kind of node in cluster.lua.
type tableRow struct {
	names  string
	gpus   int64
	memMiB int64
	shards bool
}

// nodeTable is cluster.lua.
type nodeTable struct {
	slicesPerGPU int64
	rows         []tableRow
	noGPUs       bool     // no node has gres/gpu
	latency      []string // who may have slices of that priority, as latencyOf says it; nil: the table does not say
}

// latencyOf is who may have slices of priority latency by a node's configuration.
func latencyOf(cfg config.Config) []string {
	return []string{"qos=" + strings.Join(cfg.LatencyQOS, ","), "partitions=" + strings.Join(cfg.LatencyPartitions, ",")}
}

// whoMay is latencyOf in words.
func whoMay(latency []string) string {
	var words []string
	for _, of := range latency {
		if name, names, _ := strings.Cut(of, "="); names != "" {
			words = append(words, strings.Replace(name, "qos", "QOS", 1)+" "+names)
		}
	}
	if len(words) == 0 {
		return "nobody"
	}
	return strings.Join(words, " and ")
}

// printTable says what is in cluster.lua, its argument, as vgpu.lua loads it: by the text of vgpu_table.lua.
const printTable = `local table_of = (function()
%s
end)()
local got, err = table_of.load(arg[1])
if not got then print("broken", err) os.exit() end
print("slices", got.slices_per_gpu or 10)
if got.gres_gpu == false then print("none") end
local may = got.latency
if may then print("latency", "qos=" .. table.concat(may.qos, ","), "partitions=" .. table.concat(may.partitions, ",")) end
for _, node in ipairs(got.nodes) do print("row", node.names, node.gpus, node.mem_mib, node.shards or 0) end`

// Of a file of Lua: an argument of a program may have 128 KiB.
const maxLua = 100 << 10

var (
	errBroken = errors.New("it is no table of nodes")
	errNoLua  = errors.New("no Lua interpreter is installed")
)

// cluster holds cluster.lua against what slurm.conf and gres.conf say of the nodes.
func (c *site) cluster() {
	const check, print = "cluster.lua", "paste what `vgpu-gres cluster.lua` prints on a node of each kind"
	script, _ := readText(c.JobSubmit) // jobSubmit says what is wrong with it
	path, scripts := ClusterFile, filepath.Join(filepath.Dir(installed.Usual("vgpu-prolog")), "../../share/slurm-vgpu")
	if named := clusterInScript().FindStringSubmatch(script); named != nil {
		path = named[1]
	}
	if named := ourScripts().FindStringSubmatch(script); named != nil {
		scripts = named[1]
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Warn(check, print, "without the table jobs must name their memory, and what no node can hold waits for ever: %v", err)
		return
	case err != nil:
		c.Bad(check, "make it readable", "%v", err)
		return
	case info.Mode()&0o004 == 0:
		c.Bad(check, "chown root:root "+path+" && chmod 644 "+path, "%s has mode %#o: slurmctld must be able to read it", path, info.Mode().Perm())
		return
	}
	table, err := loadTable(filepath.Join(scripts, "vgpu_table.lua"), path)
	switch {
	case errors.Is(err, trusted.ErrUntrusted):
		c.Bad(check, "chown root:root and chmod 644 what is named", "it is not loaded: %v", err)
		return
	case errors.Is(err, errBroken):
		c.Bad(check, print, "%s: %v", path, err)
		return
	case err != nil:
		c.Warn(check, "apt install lua5.4, or another Lua", "%s was not loaded: %v", path, err)
		return
	}
	before := len(c.Findings)
	c.tableAndNodes(path, table.slicesPerGPU, table.rows)
	if here := latencyOf(c.Config); table.latency != nil && whoMay(table.latency) != whoMay(here) {
		c.Warn(check, "the line latency of `vgpu-gres cluster.lua`", "--vgpu-priority=latency is for %s by %s, and for %s by config.yaml",
			whoMay(table.latency), path, whoMay(here))
	}
	c.wholeRefused(script, path, table)
	if len(c.Findings) == before {
		c.OK(check, "%s agrees with %s", path, c.file.Path)
	}
}

func loadTable(loader, path string) (nodeTable, error) {
	i := slices.IndexFunc(interpreters, exists)
	if i < 0 {
		return nodeTable{}, errNoLua
	}
	program, err := trusted.ReadFile(loader, maxLua)
	if err != nil {
		return nodeTable{}, err
	}
	text, err := trusted.ReadFile(path, maxLua)
	if err != nil {
		return nodeTable{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, interpreters[i], "-", string(text))
	cmd.Env = []string{"LC_ALL=C"}
	cmd.Stdin = strings.NewReader(fmt.Sprintf(printTable, program))
	out, err := cmd.Output()
	if err != nil {
		return nodeTable{}, fmt.Errorf("%s: %w", interpreters[i], err)
	}
	var table nodeTable
	for line := range strings.Lines(string(out)) {
		cells := strings.Split(strings.TrimSpace(line), "\t")
		if cells[0] == "broken" {
			return nodeTable{}, fmt.Errorf("%w: %s", errBroken, strings.Join(cells[1:], " "))
		}
		switch {
		case cells[0] == "slices" && len(cells) == 2:
			table.slicesPerGPU = whole(cells[1])
		case cells[0] == "none":
			table.noGPUs = true
		case cells[0] == "latency":
			table.latency = cells[1:]
		case cells[0] == "row" && len(cells) == 5:
			table.rows = append(table.rows, tableRow{names: cells[1], gpus: whole(cells[2]), memMiB: whole(cells[3]), shards: whole(cells[4]) > 0})
		}
	}
	return table, nil
}

// whole is a number of Lua's, which may have a point.
func whole(text string) int64 {
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return 0
	}
	return int64(number)
}

// tableAndNodes compares each node that slurm.conf gives slices.
func (c *site) tableAndNodes(path string, slicesPerGPU int64, rows []tableRow) {
	const check = "cluster.lua"
	gres, err := readOptional(c.GresConf)
	if err != nil {
		c.Bad("gres.conf", "make it readable", "%v", err)
	}
	for _, line := range c.file.All("NodeName") {
		for _, node := range c.hosts(line.Pairs[0].Value) {
			values, at, _ := c.file.Node(node)
			counts := gresCounts(values["gres"])
			if counts[request.GRESSlices] == "" {
				continue
			}
			var gpus, memMiB int64
			shards := false
			for _, row := range rows {
				if slurm.HostlistContains(row.names, node) {
					gpus, memMiB, shards = gpus+row.gpus, memMiB+row.gpus*row.memMiB, shards || row.shards
				}
			}
			remedy := "on " + node + ": vgpu-gres cluster.lua"
			switch {
			case gpus == 0 && isLarger(counts, rows):
				c.Bad(check, remedy, "%s has no row for %s, which is larger than all others by %s: jobs that only it can hold are refused", path, node, at.Place())
			case gpus == 0:
				c.Warn(check, remedy, "%s has no row for %s, which has slices by %s: the sizes of other nodes say what its jobs may ask for", path, node, at.Place())
			case counts[request.GRESCores] != strconv.FormatInt(100*gpus, 10):
				c.Bad(check, remedy, "%s: %s has %d GPUs, which is gpucores:%d; %s has gpucores:%s", path, node, gpus, 100*gpus, at.Place(), counts[request.GRESCores])
			case counts[request.GRESSlices] != strconv.FormatInt(slicesPerGPU*gpus, 10):
				c.Bad(check, remedy, "%s: %d slices on each of the %d GPUs of %s, %s has vgpu:%s", path, slicesPerGPU, gpus, node, at.Place(), counts[request.GRESSlices])
			case whole(counts[request.GRESMem]) < memMiB && len(rows) == 1 || whole(counts[request.GRESMem]) < memMiB/gpus:
				c.Bad(check, remedy, "%s gives each GPU of %s %d MiB, %s gives all of them gpumem:%s", path, node, memMiB/gpus, at.Place(), counts[request.GRESMem])
			}
			if gpus > 0 {
				c.tableAndShards(path, node, at, shards, offersShard().MatchString(values["gres"]))
			}
			c.sameCounts(gres, node, at, counts)
		}
	}
	with := func(r tableRow) bool { return r.shards }
	if script, _ := readText(c.JobSubmit); slices.ContainsFunc(rows, with) && slices.ContainsFunc(rows, func(r tableRow) bool { return !with(r) }) && !shardsByJob().MatchString(script) {
		c.Warn(check, "move the other nodes over as well, or say in job_submit.lua which jobs go to them: vgpu.shards = function(job) …",
			"%s has nodes with shards and nodes without: slices are sent to those with alone", path)
	}
	for _, row := range rows {
		for _, node := range c.hosts(row.names) {
			if _, _, known := c.file.Node(node); !known {
				c.Bad(check, "take it out, or give it a NodeName= line", "%s has a row for %s, which is not in %s", path, node, c.file.Path)
			}
		}
	}
}

// tableAndShards: by the table job_submit.lua counts shards for a job, and by Gres= the node has them.
func (c *site) tableAndShards(path, node string, at slurmconf.Line, table, offers bool) {
	const check = "cluster.lua"
	switch {
	case offers && !table:
		c.Bad(check, "on "+node+": vgpu-gres cluster.lua", "%s has no shards for %s, which offers gres/shard by %s: jobs get none, and vgpu-prolog refuses their slices", path, node, at.Place())
	case table && !offers:
		c.Bad(check, "on "+node+": vgpu-gres cluster.lua", "%s has shards for %s, which offers no gres/shard by %s: jobs with slices never start there", path, node, at.Place())
	}
}

// isLarger says whether a node by its counts has more GPUs, or larger ones, than each row.
func isLarger(counts map[string]string, rows []tableRow) bool {
	gpus := max(whole(counts[request.GRESCores])/100, 1)
	memMiB := whole(counts[request.GRESMem]) / gpus
	holds := func(row tableRow) bool { return row.gpus >= gpus && row.memMiB >= memMiB }
	return !slices.ContainsFunc(rows, holds)
}

// sameCounts holds gres.conf against Gres=, where the controller's copy is about the node.
func (c *site) sameCounts(gres slurmconf.File, node string, at slurmconf.Line, counts map[string]string) {
	for _, name := range gresNames {
		for _, line := range gres.GRES(name, node) {
			if count, has := line.Get("count"); has && count != counts[name] {
				c.Bad("gres.conf", "vgpu-gres gres.conf and vgpu-gres slurm.conf print both on "+node, "%s: %s counts %s of node %s, %s says %s", line.Place(), name, count, node, at.Place(), counts[name])
			}
		}
	}
}

// hosts are the names of a list, as Slurm writes them out.
func (c *site) hosts(list string) []string {
	if strings.EqualFold(list, "DEFAULT") {
		return nil
	}
	if !strings.ContainsAny(list, "[,") {
		return []string{list}
	}
	text, err := say(context.Background(), c.Config.Slurm.Scontrol, c.SlurmConf, "show", "hostnames", list)
	if err != nil {
		c.Warn("cluster.lua", "repair what scontrol says", "the nodes %s were not compared: %v", list, err)
		return nil
	}
	return strings.Fields(text)
}

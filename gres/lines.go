// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sitecheck"
)

// node is what the lines are made of.
type node struct {
	name      string
	config    config.Config // as written: %n is not replaced
	inventory device.Inventory
	by        counting
}

func (n node) counts() sitecheck.Counts {
	return sitecheck.CountsOf(n.inventory, n.config.SlicesPerGPU, n.config.MemOvercommit)
}

// withoutGPUs says that Slurm has none of the node's GPUs as gres/gpu.
func (n node) withoutGPUs() bool {
	return !n.config.WholeGPUs && !n.by.shards && len(n.config.SlurmGPUs) == 0
}

var errNoGPU = errors.New("this node has no GPU that can be used; `vgpu-gres inventory` says why")

func lineCommands(o *options) []*cobra.Command {
	var flags countingFlags
	command := func(name, short, long string, gpus bool, write func(io.Writer, node)) *cobra.Command {
		line := &cobra.Command{
			Use: name, Short: short, Long: short + ".\n\n" + long, Args: noArguments,
			Example: "  vgpu-gres " + name,
			RunE: func(command *cobra.Command, _ []string) error {
				asWritten, forNode, err := o.load()
				if err != nil {
					return err
				}
				n := node{name: o.node, config: asWritten}
				if name != "plugstack.conf" {
					if n.by, err = flags.counting(func() string { return slurmVersion(command.Context(), forNode) }, forNode); err != nil {
						return err
					}
				}
				if gpus {
					if n.inventory, err = known(forNode); err != nil {
						return err
					}
					if n.counts().Slices == 0 {
						return errNoGPU
					}
					if err := noTypes(asWritten, n.inventory); err != nil {
						return err
					}
				}
				write(command.OutOrStdout(), n)
				return nil
			},
		}
		if name != "plugstack.conf" {
			line.Flags().BoolVar(&flags.shards, "shards", false, "Slurm picks the GPU of each slice, by shards; the default from Slurm 23.11.5 on")
			line.Flags().BoolVar(&flags.counts, "counts", false, "Slurm counts slices, memory and time by node, and the prolog picks the GPU")
		}
		return line
	}
	cluster := command("cluster.lua", "Print the table of nodes that job_submit.lua reads",
		"One entry of the table per kind of node: join the names of equal nodes in one entry,\nn[1-4], and put the file on the controller as /etc/slurm-vgpu/cluster.lua.", true, printCluster)
	cluster.Aliases = []string{"cluster"}
	return []*cobra.Command{
		sizesCommand(o),
		command("gres.conf", "Print this node's lines for gres.conf", "The same file may hold the lines of all nodes.", true, printGresConf),
		command("slurm.conf", "Print the lines for slurm.conf", "Join lists with what is there already. Gres= goes into the line of the node that is there,\nand its own line here is a comment: Slurm takes one line for a node.", true, printSlurmConf),
		command("plugstack.conf", "Print the line for plugstack.conf", "It is needed on nodes and wherever sbatch, srun and salloc run.", false, printPlugstack),
		command("accounting", "Print the line that makes Slurm account vgpu", "It belongs into slurm.conf; sacct then shows what was asked for and granted.", false, printAccounting),
		cluster,
	}
}

func printGresConf(out io.Writer, n node) {
	c := n.counts()
	fmt.Fprintf(out, `# %s: %s.
%s# CountOnly: Slurm counts these by node, and ties them to no GPU. The unit of gpumem is MiB.
NodeName=%[1]s Name=vgpu Count=%[4]d Flags=CountOnly
NodeName=%[1]s Name=gpumem Count=%[5]d Flags=CountOnly
NodeName=%[1]s Name=gpucores Count=%[6]d Flags=CountOnly
`, n.name, describe(n.inventory), n.by.comment(), c.Slices, c.MemMiB, c.Cores)
	if n.by.shards {
		fmt.Fprintln(out, "# shards: Slurm picks the GPU of each slice, and whole ones. One shard is one MiB. All GPUs stand here, in order.")
		for _, line := range sitecheck.ShardLines(n.name, n.config.DeviceDir, n.inventory, n.config.MemOvercommit) {
			fmt.Fprintln(out, line)
		}
	}
	if n.config.WholeGPUs {
		fmt.Fprintln(out, "# whole_gpus: the prolog chooses these too. All of them stand here, in order, or Slurm's numbers would be others.")
		for _, line := range sitecheck.WholeGPULines(n.name, n.config.DeviceDir, n.inventory) {
			fmt.Fprintln(out, line)
		}
	}
}

func printSlurmConf(out io.Writer, n node) {
	types, gpus, gpu := "gpu,", "", ""
	if n.withoutGPUs() {
		gpu = "# gpu is for job_submit.lua, which says what to write instead of --gpus: without it Slurm's commands do not call the script.\n"
	}
	if len(n.config.SlurmGPUs) > 0 {
		gpu = "# slurm_gpus: Name=gpu of gres.conf and gpu:TYPE:N in Gres= are the site's to write, of Slurm's own GPUs.\n"
	}
	if n.config.WholeGPUs {
		gpus = sitecheck.WholeGPUCounts(n.inventory) + ","
	}
	if n.by.shards {
		types, gpus = "gpu,shard,", sitecheck.ShardCounts(n.inventory, n.config.MemOvercommit)+","
	}
	fmt.Fprintf(out, `%s# A setting that stands in slurm.conf already is changed there: of two lines Slurm takes the last alone.
# The three GRES, and how many this node has of them: slices, MiB and percent of GPU time.
%sGresTypes=%svgpu,gpumem,gpucores
# Slurm takes one line for a node. Add Gres= to the one that is there:
#NodeName=%s Gres=%s%s

# Nodes are shared by what jobs ask for.
SelectType=select/cons_tres

# The prolog places a job's slices when it is allocated, before any step starts.
PrologFlags=Alloc,Contain
Prolog=%s
Epilog=%s

# Turns --vgpu-mem and --vgpu-cores into GRES, and refuses what no node can hold.
JobSubmitPlugins=lua

`, n.by.comment(), gpu, types, n.name, gpus, n.counts(), installed.Usual("vgpu-prolog"), installed.Usual("vgpu-epilog"))
	printAccounting(out, n)
}

func printAccounting(out io.Writer, n node) {
	tres := sitecheck.AccountingTRES
	switch {
	case n.by.shards:
		tres = append([]string{"gres/gpu", "gres/shard"}, tres...)
	case n.config.WholeGPUs, len(n.config.SlurmGPUs) > 0:
		tres = append([]string{"gres/gpu"}, tres...)
	}
	fmt.Fprintf(out, `# What sacct shows. gres/gpuutil belongs to Slurm's own gres/gpumem (23.02 and later) and must be there with it.
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageTRES=%s
`, strings.Join(tres, ","))
}

func printPlugstack(out io.Writer, n node) {
	fmt.Fprintf(out, `# required: a job whose plugin cannot be loaded must not run without a limit.
%s
`, sitecheck.PlugstackLine(sitecheck.PluginPath(), n.config.RunDir, rundir.Default))
}

// printCluster gives the table by what a slice can be at most: the largest GPU of the node.
func printCluster(out io.Writer, n node) {
	var largest device.GPU
	gpus := 0
	for _, gpu := range n.inventory.GPUs {
		if !gpu.IsCounted() {
			continue
		}
		gpus++
		if gpu.MemMiB > largest.MemMiB {
			largest = gpu
		}
	}
	shards, gpu := "", ""
	if n.withoutGPUs() && sitecheck.NoWholeGPUs(sitecheck.DefaultSlurmConf()) {
		gpu = "\tgres_gpu = false, -- no node has any: a job that asks for --gpus is refused with what to write instead\n"
	}
	if n.by.shards {
		shards = fmt.Sprintf(", shards = %d", largest.GrantableMiB(n.config.MemOvercommit))
	}
	fmt.Fprintf(out, `-- /etc/slurm-vgpu/cluster.lua on the controller. One entry per kind of node; mem_mib is of one GPU.
-- latency is who may have --vgpu-priority=latency.
return {
	slices_per_gpu = %d,
	latency = %s,
%s%s	nodes = {
		{ names = %q, gpus = %d, mem_mib = %d, type = %q%s },
	},
}
`, n.config.SlicesPerGPU, latencyTable(n.config), gpu, sizesTable(n.config), n.name, gpus, largest.MemMiB, largest.Type, shards)
}

// latencyTable is who may have --vgpu-priority=latency.
func latencyTable(cfg config.Config) string {
	list := func(names []string) string {
		var quoted []string
		for _, name := range names {
			quoted = append(quoted, strconv.Quote(name))
		}
		return strings.Join(quoted, ", ")
	}
	return fmt.Sprintf("{ qos = { %s }, partitions = { %s } }", list(cfg.LatencyQOS), list(cfg.LatencyPartitions))
}

// describe is "2 GPUs of type h200".
func describe(inv device.Inventory) string {
	types := make(map[string]int)
	for _, gpu := range inv.GPUs {
		if gpu.IsCounted() {
			types[gpu.Type]++
		}
	}
	var parts []string
	for name, count := range types {
		plural := "s"
		if count == 1 {
			plural = ""
		}
		parts = append(parts, fmt.Sprintf("%d GPU%s of type %s", count, plural, name))
	}
	sort.Strings(parts)
	return strings.Join(parts, ", ")
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// clusterStatus is what `vgpuctl nodes --json` prints.
type clusterStatus struct {
	Nodes []clusterNode `json:"nodes"`
	// Waiting are the jobs in the queue that ask for slices; an array counts once.
	Waiting int `json:"waiting"`
}

type clusterNode struct {
	Node       string              `json:"node"`
	State      string              `json:"state"` // Slurm's
	Partitions []string            `json:"partitions"`
	GPUs       int                 `json:"gpus"`
	Has        request.Entitlement `json:"has"`
	Granted    request.Entitlement `json:"granted"`
	Free       request.Entitlement `json:"free"`
	// A slice of at most FitsMiB fits for sure where the node takes jobs, one of more than MayFitMiB does not.
	FitsMiB   int64 `json:"fits_mib"`
	MayFitMiB int64 `json:"may_fit_mib"`
	Waiting   int   `json:"waiting"` // jobs in the queue of one of its partitions
	// Sizes is how many more slices of each named size the node's counts admit, at most.
	Sizes map[string]int `json:"sizes,omitempty"`
}

const nodesText = `Show the nodes of the cluster that have slices, with their granted and their free room as the controller
counts it. Any user may run this, on any node with Slurm's commands; it does not query the nodes.

VGPU, MEM MiB and CORES are granted/all. FREE is what is left in MiB on all GPUs of the node together,
FITS how large a slice may be: the controller counts by node and not by GPU, so one of the first size fits
for sure, one of more than the second does not, and between them the prolog decides. That holds for GPUs of
one size, of which none is lost or draining; vgpuctl status on the node itself shows each GPU. WAIT are jobs
in the queues of the node's partitions that ask for slices, an array counted once.

Where config.yaml of this host has sizes, a second table has how many more slices of each the node's counts admit:
so many at most, and fewer where slices lie badly on its GPUs. A share is of the cluster's largest GPU.`

func nodesCommand(o *options) *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:     "nodes [--json]",
		Short:   "Show all nodes with slices: granted and free room, and the slice that would fit",
		Long:    nodesText,
		Example: "  vgpuctl nodes\n  vgpuctl nodes --json | jq '.nodes[] | select(.fits_mib >= 20000) | .node'",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			held, err := o.believed() // of Slurm's programs alone
			if err != nil {
				return err
			}
			status, err := readCluster(command.Context(), held.Config)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(command.OutOrStdout(), status)
			}
			printCluster(command.OutOrStdout(), status)
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// clusterWait is how long somebody at a prompt waits for a controller that does not answer.
const clusterWait = 20 * time.Second

func readCluster(ctx context.Context, cfg config.Config) (clusterStatus, error) {
	controller := slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: clusterWait}
	status := clusterStatus{Nodes: []clusterNode{}}
	nodes, err := controller.Nodes(ctx)
	if err != nil {
		return status, err
	}
	pending, err := controller.Pending(ctx)
	if err != nil {
		return status, err
	}
	status.Waiting = len(pending)
	for _, n := range nodes {
		node := clusterNodeOf(n)
		for _, job := range pending {
			if slices.ContainsFunc(job.Partitions, func(p string) bool { return slices.Contains(n.Partitions, p) }) {
				node.Waiting++
			}
		}
		status.Nodes = append(status.Nodes, node)
	}
	status.countSizes(cfg)
	return status, nil
}

// countSizes says how many of each named size the nodes have room for.
func (c clusterStatus) countSizes(cfg config.Config) {
	largest := int64(0) // as job_submit.lua takes a share
	for _, n := range c.Nodes {
		if n.GPUs > 0 {
			largest = max(largest, int64(math.Round(float64(n.Has.MemMiB)/float64(n.GPUs)/cfg.MemOvercommit)))
		}
	}
	for i, n := range c.Nodes {
		for _, size := range cfg.NamedSizes() {
			if c.Nodes[i].Sizes == nil {
				c.Nodes[i].Sizes = map[string]int{}
			}
			count := 0
			if n.GPUs > 0 && takesJobs(n.State) {
				count = fitsOf(request.Entitlement{Slices: 1, MemMiB: size.Mem.OfGPU(largest), SMPercent: size.SMPercent}, n.Has, n.Free, n.GPUs)
			}
			c.Nodes[i].Sizes[size.Name] = count
		}
	}
}

// fitsOf is how many more of a slice a node's counts admit, of which no GPU can hold more than it has.
func fitsOf(slice, has, free request.Entitlement, gpus int) int {
	most := int64(free.Slices)
	if slice.MemMiB > 0 {
		most = min(most, free.MemMiB/slice.MemMiB, int64(gpus)*(has.MemMiB/int64(gpus)/slice.MemMiB))
	}
	if slice.SMPercent > 0 {
		most = min(most, int64(free.SMPercent/slice.SMPercent), int64(gpus*(100/slice.SMPercent)))
	}
	return int(most)
}

func clusterNodeOf(n slurm.Node) clusterNode {
	node := clusterNode{Node: n.Name, State: n.State, Partitions: n.Partitions, GPUs: n.Has.SMPercent / 100, Has: n.Has, Granted: n.Used,
		Free: request.Entitlement{Slices: max(n.Has.Slices-n.Used.Slices, 0), MemMiB: max(n.Has.MemMiB-n.Used.MemMiB, 0),
			SMPercent: max(n.Has.SMPercent-n.Used.SMPercent, 0)}}
	if takesJobs(n.State) {
		node.FitsMiB, node.MayFitMiB = fits(n.Has, n.Used)
	}
	return node
}

// takesJobs says that Slurm may start a job on a node of this state.
func takesJobs(state string) bool {
	state, marks := strings.TrimRight(state, "*~#!%$@^-+"), state
	if strings.ContainsAny(marks, "*") { // does not respond
		return false
	}
	return slices.Contains([]string{"idle", "mixed", "allocated", "completing", "planned"}, state)
}

// fits is the largest slice that fits for sure, and the largest that may. GPUs that a slice can have to itself, or that
// can have as many slices as they may, do not count for the first, however much they have left.
func fits(has, used request.Entitlement) (surely, maybe int64) {
	gpus := int64(has.SMPercent / 100)
	if gpus == 0 || has.Slices-used.Slices <= 0 {
		return 0, 0
	}
	each, free := has.MemMiB/gpus, max(has.MemMiB-used.MemMiB, 0)
	maybe = min(each, free)
	closed := int64(used.SMPercent / 100)
	if perGPU := int64(has.Slices) / gpus; perGPU > 0 {
		closed += int64(used.Slices) / perGPU
	}
	if open := gpus - closed; open > 0 {
		surely = max((free-closed*each+open-1)/open, 0)
	}
	return min(surely, maybe), maybe
}

func printCluster(out io.Writer, status clusterStatus) {
	p := painter(out)
	if len(status.Nodes) == 0 {
		fmt.Fprintln(out, "no node of this cluster has vgpu")
		return
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NODE\tGPUS\tVGPU\tMEM MiB\tCORES\tFREE\tFITS\tWAIT\tSTATE")
	for _, n := range status.Nodes {
		state := p.good(n.State)
		if !takesJobs(n.State) {
			state = p.bad(n.State)
		}
		fmt.Fprintf(table, "%s\t%d\t%d/%d\t%d/%d\t%d/%d%%\t%d\t%s\t%d\t%s\n", n.Node, n.GPUs, n.Granted.Slices, n.Has.Slices,
			n.Granted.MemMiB, n.Has.MemMiB, n.Granted.SMPercent, n.Has.SMPercent, n.Free.MemMiB, n.fitsText(), n.Waiting, state)
	}
	table.Flush()
	if status.Waiting > 0 {
		fmt.Fprintf(out, "\n%s for slices\n", waitText(status.Waiting))
	}
	if names := slices.Sorted(maps.Keys(status.Nodes[0].Sizes)); len(names) > 0 {
		fmt.Fprintln(out, "\nof each size fit at most:")
		fmt.Fprintln(table, "NODE\t"+strings.Join(names, "\t"))
		for _, n := range status.Nodes {
			fmt.Fprint(table, n.Node)
			for _, name := range names {
				fmt.Fprintf(table, "\t%d", n.Sizes[name])
			}
			fmt.Fprintln(table)
		}
		table.Flush()
	}
}

func (n clusterNode) fitsText() string {
	switch {
	case n.MayFitMiB == 0:
		return "-"
	case n.FitsMiB == n.MayFitMiB:
		return fmt.Sprint(n.FitsMiB)
	}
	return fmt.Sprintf("%d..%d", n.FitsMiB, n.MayFitMiB)
}

func waitText(n int) string {
	if n == 1 {
		return "1 job waits"
	}
	return fmt.Sprintf("%d jobs wait", n)
}

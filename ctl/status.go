// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
	"github.com/slurm-vgpu/slurm-vgpu/internal/waiting"
)

// nodeStatus is what `vgpuctl status --json` prints.
type nodeStatus struct {
	Node   string        `json:"node"`
	GPUs   []gpuStatus   `json:"gpus"`
	Slices []sliceStatus `json:"slices"`
	// Waiting are the jobs that found no room here, the longest waiting first.
	Waiting []waitingStatus `json:"waiting"`
	// Problem is why something is missing here.
	Problem string `json:"problem,omitempty"`
	// DriverProblem is why nothing is known of what the driver says.
	DriverProblem string `json:"driver_problem,omitempty"`
}

type gpuStatus struct {
	device.GPU
	GrantedMiB     int64  `json:"granted_mib"`
	FreeMiB        int64  `json:"free_mib"` // what new slices may still take together
	GrantedPercent int    `json:"granted_percent"`
	Slices         int    `json:"slices"`
	MaxSlices      int    `json:"max_slices"`
	OthersMiB      *int64 `json:"others_mib"` // held by processes that have no slice of it; null: not known, or not root
	// Others are these processes.
	Others []strangerStatus `json:"others,omitempty"`
	State  string           `json:"state"` // ok, draining, exclusive, lost
}

type sliceStatus struct {
	Job        uint32           `json:"job"`
	Restart    int              `json:"restart"`
	UID        uint32           `json:"uid"`
	User       string           `json:"user"`
	Device     device.UUID      `json:"device"`
	Index      device.NVMLIndex `json:"nvml_index"`
	MemMiB     int64            `json:"mem_mib"`
	SMPercent  int              `json:"sm_percent"` // 0: no cap
	UsedMiB    *int64           `json:"used_mib"`   // null: not readable by who asks
	PeakMiB    *int64           `json:"peak_mib"`
	Refusals   *uint64          `json:"refusals"`
	Since      time.Time        `json:"since"`
	AgeSeconds int64            `json:"age_seconds"`
	shareStatus
	driverStatus
}

// waitingStatus is a job that waits for room on this node.
type waitingStatus struct {
	Job        uint32    `json:"job"`
	UID        uint32    `json:"uid"`
	User       string    `json:"user"`
	Since      time.Time `json:"since"`
	AgeSeconds int64     `json:"age_seconds"`
	Reason     string    `json:"reason"`
	Told       time.Time `json:"told,omitzero"` // when it was told that there is room
}

func waitingOf(cfg config.Config, now time.Time) (all []waitingStatus, err error) {
	jobs, err := waiting.Read(cfg.Spool())
	all = make([]waitingStatus, 0, len(jobs))
	for _, j := range jobs {
		all = append(all, waitingStatus{Job: j.Job, UID: j.UID, User: userName(j.UID), Since: j.Since, AgeSeconds: int64(now.Sub(j.Since).Seconds()),
			Reason: j.Reason, Told: j.Told})
	}
	return all, err
}

func statusCommand(o *options) *cobra.Command {
	var asJSON bool
	var over time.Duration
	command := &cobra.Command{
		Use:   "status [--over DURATION] [--json]",
		Short: "Show this node's GPUs and slices",
		Long: `Show this node's GPUs, what is granted of each, and the slices: whose they are, how large, and what
is used of them now and at most. Jobs that found no room here follow, the longest waiting first. What belongs to other users is shown as "-" unless root asks.

USED is what the job's ledger says, which the limit is held against. DRIVER is what the driver says that the
job's processes hold, and DIFF is DRIVER less USED: less than 0 where memory is charged that the driver has not
given out yet, or counts for no process, such as managed memory, more where something is held that is not
charged. Both are of this moment, and a program at work may allocate between the two. "-" is not known; the
reason follows.

GPU S is the GPU time used, in seconds, and SHARE what that is of the GPU's time since the slice was
granted; with --over, of the time between two looks. Behind a ~ it is an estimate from the driver's samples,
as old as the last run of "vgpuctl sample": nobody meters a slice without a share. REFUSED counts allocations that a limit has refused.`,
		Example: "  vgpuctl status\n  vgpuctl status --over 1s\n  watch vgpuctl status\n  vgpuctl status --json | jq '.gpus[] | {nvml_index, free_mib}'",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			cfg, err := o.load()
			if err != nil {
				return err
			}
			if over < 0 || over > maxOver {
				return exitError{exitUsage, fmt.Errorf("--over %s: from 0s to %s", over, maxOver)}
			}
			start := time.Now()
			status, err := readStatus(cfg, o.node, start)
			if err == nil && over > 0 {
				first := status
				time.Sleep(over)
				now := time.Now()
				status, err = readStatus(cfg, o.node, now)
				sharesBetween(first, status, now.Sub(start))
			}
			if err != nil {
				return err
			}
			out := command.OutOrStdout()
			if asJSON {
				return printJSON(out, status)
			}
			printStatus(out, status)
			return nil
		},
	}
	command.Flags().DurationVar(&over, "over", 0, "look twice, `duration` apart, and show the share of that time")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// maxOver is longer than anybody waits for a table.
const maxOver = time.Hour

func readStatus(cfg config.Config, node string, now time.Time) (nodeStatus, error) {
	status := nodeStatus{Node: node, GPUs: []gpuStatus{}, Slices: []sliceStatus{}, Waiting: []waitingStatus{}}
	boot, err := inventory.BootID()
	if err != nil {
		return status, err
	}
	current, err := state.Store{Dir: cfg.Run(), BootID: boot, Log: hclog.NewNullLogger()}.Read()
	if err != nil {
		return status, err
	}
	inv, err := inventory.Read(cfg.Run().Inventory())
	switch {
	case errors.Is(err, fs.ErrNotExist):
		status.Problem = "there is no inventory yet: the first vgpu-prolog, or `vgpu-gres inventory --write`, makes it"
	case err != nil:
		status.Problem = err.Error()
	case inv.BootID != boot:
		status.Problem = "the inventory is of an earlier boot: `vgpu-gres inventory --write` makes a new one"
	}
	for _, gpu := range inv.GPUs {
		status.GPUs = append(status.GPUs, statusOf(cfg, gpu, current.Slices))
	}
	used := make(map[uint32]*jobUse)
	for _, s := range current.Slices {
		status.Slices = append(status.Slices, sliceOf(cfg.Run(), s, used, now))
	}
	if status.Waiting, err = waitingOf(cfg, now); err != nil {
		status.Problem = err.Error()
	}
	addDriver(cfg, &status, inv.GPUs, current.Slices)
	slices.SortStableFunc(status.Slices, func(a, b sliceStatus) int {
		if a.Index != b.Index {
			return int(a.Index - b.Index)
		}
		return int(int64(a.Job) - int64(b.Job))
	})
	return status, nil
}

func statusOf(cfg config.Config, gpu device.GPU, granted []state.Slice) gpuStatus {
	g := gpuStatus{GPU: gpu, MaxSlices: cfg.SlicesPerGPU, State: "ok"}
	exclusive := false
	for _, s := range granted {
		if s.Device == gpu.UUID {
			g.Slices++
			g.GrantedMiB += s.MemMiB
			g.GrantedPercent += s.SMPercent
			exclusive = exclusive || s.SMPercent == 100
		}
	}
	g.FreeMiB = max(int64(math.Floor(float64(gpu.MemMiB)*cfg.MemOvercommit))-g.GrantedMiB, 0)
	switch {
	case gpu.Lost != "":
		g.State, g.FreeMiB = "lost", 0
	case slices.Contains(cfg.Drain, gpu.UUID):
		g.State, g.FreeMiB = "draining", 0
	case exclusive:
		g.State, g.FreeMiB = "exclusive", 0
	}
	return g
}

// jobUse is what is known of a job's use.
type jobUse struct {
	devices []ledger.DeviceUsage
	sampled []timeline.Sample // nil: nobody has looked
}

// sliceOf adds what the job's ledger says. used keeps what was read of a job with several slices.
func sliceOf(dir rundir.Dir, s state.Slice, used map[uint32]*jobUse, now time.Time) sliceStatus {
	status := sliceStatus{
		Job: s.Job, Restart: s.Restart, UID: s.UID, User: userName(s.UID), Device: s.Device, Index: s.Index,
		MemMiB: s.MemMiB, SMPercent: s.SMPercent, Since: s.Since, AgeSeconds: int64(now.Sub(s.Since) / time.Second),
	}
	held := now.Sub(s.Since)
	g, err := grant.Read(dir.Grant(s.Job))
	if err != nil {
		return status
	}
	if _, done := used[s.Job]; !done {
		used[s.Job] = nil
		if collected, err := usage.Collect(dir, g); err == nil {
			used[s.Job] = &jobUse{collected.Devices, usage.Newest(dir, g)}
		}
	}
	if used[s.Job] == nil {
		return status
	}
	for i, slice := range g.Slices {
		if slice.Device == s.Device && i < len(used[s.Job].devices) {
			d, sampled := used[s.Job].devices[i], timeline.Sample{}
			if i < len(used[s.Job].sampled) {
				sampled = used[s.Job].sampled[i]
			}
			now, peak, refusals := usage.MiB(d.UsedBytes), usage.MiB(d.PeakBytes), d.Refusals
			status.UsedMiB, status.PeakMiB, status.Refusals = &now, &peak, &refusals
			status.shareStatus = shareOf(slice.SMPercent, d, sampled, held)
		}
	}
	return status
}

func printStatus(out io.Writer, status nodeStatus) {
	p := painter(out)
	fmt.Fprintf(out, "%s: %s, %s\n", p.bold(status.Node), plural(len(status.GPUs), "GPU"), plural(len(status.Slices), "slice"))
	if status.Problem != "" {
		fmt.Fprintln(out, p.bad(status.Problem))
	}
	if len(status.GPUs) > 0 {
		fmt.Fprintln(out)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "GPU\tTYPE\tUUID\tMEM MiB\tGRANTED\tFREE\tCORES\tSLICES\tSTATE")
		for _, g := range status.GPUs {
			word := p.good(g.State)
			if g.State != "ok" && g.State != "exclusive" {
				word = p.bad(g.State)
			}
			if g.Lost != "" {
				word += ": " + g.Lost
			}
			fmt.Fprintf(table, "%d\t%s\t%s\t%d\t%d\t%d\t%d%%\t%d/%d\t%s\n", g.Index, g.Type, g.UUID, g.MemMiB, g.GrantedMiB, g.FreeMiB, g.GrantedPercent, g.Slices, g.MaxSlices, word)
		}
		table.Flush()
	}
	if len(status.Slices) > 0 {
		fmt.Fprintln(out)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "JOB\tUSER\tGPU\tMEM MiB\tCORES\tUSED\tDRIVER\tDIFF\tPEAK\tGPU S\tSHARE\tAGE\tREFUSED")
		for _, s := range status.Slices {
			refused := known(s.Refusals)
			if s.Refusals != nil && *s.Refusals > 0 {
				refused = p.bad(refused)
			}
			spent, share := s.cells()
			fmt.Fprintf(table, "%d\t%s\t%d\t%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Job, s.User, s.Index, s.MemMiB, cores(s.SMPercent),
				known(s.UsedMiB), known(s.DriverMiB), difference(s.DifferenceMiB), known(s.PeakMiB), spent, share,
				age(time.Duration(s.AgeSeconds)*time.Second), refused)
		}
		table.Flush()
	}
	if len(status.Waiting) > 0 {
		fmt.Fprintln(out)
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(table, "JOB\tUSER\tWAITS\tFOR ROOM")
		for _, w := range status.Waiting {
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\n", w.Job, w.User, age(time.Duration(w.AgeSeconds)*time.Second), w.Reason)
		}
		table.Flush()
	}
	for i, note := range driverNotes(status) {
		if i == 0 {
			fmt.Fprintln(out)
		}
		fmt.Fprintln(out, note)
	}
}

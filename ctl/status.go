// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
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
	// VgpudRuns says whether vgpud is there that keeps shares here, or should; null: it need not be, or not root asks.
	VgpudRuns *bool `json:"vgpud_runs,omitempty"`
	// DriverProblem is why nothing is known of what the driver says.
	DriverProblem string `json:"driver_problem,omitempty"`

	unreadable map[string]bool // sources of which nothing is known
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
	State  string           `json:"state"` // ok, draining, exclusive, lost, slurm
	// KeptBy is who keeps the shares of its slices: library, vgpud; "": it has none.
	KeptBy string `json:"kept_by,omitempty"`

	others *audit.Total
}

// stateSlurms is that of a GPU that Slurm hands out by itself (slurm_gpus): no slices are placed on it, and nothing is wrong.
const stateSlurms = "slurm"

type sliceStatus struct {
	Job       uint32           `json:"job"`
	Restart   int              `json:"restart"`
	UID       uint32           `json:"uid"`
	User      string           `json:"user"`
	Device    device.UUID      `json:"device"`
	Index     device.NVMLIndex `json:"nvml_index"`
	MemMiB    int64            `json:"mem_mib"`
	SMPercent int              `json:"sm_percent"` // 0: no cap
	Priority  device.Priority  `json:"priority"`
	UsedMiB   *int64           `json:"used_mib"` // null: not readable by who asks, or the job has spoiled its ledger
	usage.Figures
	Since      time.Time `json:"since"`
	AgeSeconds int64     `json:"age_seconds"`
	shareStatus
	driverStatus
	Counted *countedStatus `json:"vgpud,omitempty"` // null: vgpud has not looked at it

	grant *grant.Grant // nil: not known
	use   *ledger.DeviceUsage
	steps []ledger.StepUsage // those that run, of all slices of the job
	place int                // of this slice among the job's
	held  *audit.Total       // by the driver's word
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

const statusText = `Show this node's GPUs, what is granted of each, and the slices: whose they are, how large, and what
is used of them now and at most. Jobs that found no room here follow, the longest waiting first. The figures of other users' jobs are shown as "-", except to root.

USED is what the job's ledger says of processes that live, which the limit is held against. DRIVER is what the
driver says that the job's processes hold, and DIFF is DRIVER less USED: less than 0 where memory is charged
that the driver has not given out yet, or counts for no process, such as managed memory, more where something is
held that is not charged. Both are of this moment, and a program at work may allocate between the two. "-" is
not known; the reason follows.

GPU S is the GPU time used, in seconds, and SHARE what that is of the GPU's time since the slice was
granted; with --over, of the time between two looks. vgpud counts it; "-" is a slice at which it has not looked, and
behind a ~ it is in part split of what several slices used together. REFUSED counts allocations that a limit has refused.

Where vgpud keeps the shares of a GPU, SHARES says so, or that it is not there (root alone can see that). A table of its
slices follows: the PRIORITY and the TIME SLICE that each has in the driver, the part of the GPU that it had in the last half second (NOW),
the CREDIT of one of priority latency, how often its step was frozen for cheating (FROZEN), and what else there is to know.

With --watch the node is shown until Ctrl-C and looked at every two seconds: a lane for each GPU, in which slices are
blocks as wide as they are large, # what is used of them and - what is granted only. Only lines that change are
drawn. Where the output is no terminal, a line is appended for each GPU that has changed.`

func statusCommand(o *options) *cobra.Command {
	var asJSON, live bool
	var over time.Duration
	command := &cobra.Command{
		Use:     "status [--over DURATION] [--json] | status --watch",
		Short:   "Show this node's GPUs and slices",
		Long:    statusText,
		Example: "  vgpuctl status\n  vgpuctl status --over 1s\n  vgpuctl status --watch\n  vgpuctl status --json | jq '.gpus[] | {nvml_index, free_mib}'",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			cfg, err := o.held()
			if err != nil {
				return err
			}
			if over < 0 || over > maxOver {
				return exitError{exitUsage, fmt.Errorf("--over %s: from 0s to %s", over, maxOver)}
			}
			if live {
				if asJSON || over > 0 {
					return exitError{exitUsage, errors.New("--watch goes with neither --json nor --over")}
				}
				return watch(command.Context(), cfg, o.node, command.OutOrStdout())
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
			if asJSON {
				return printJSON(command.OutOrStdout(), status)
			}
			return printStatus(command.OutOrStdout(), status)
		},
	}
	command.Flags().DurationVar(&over, "over", 0, "look twice, `duration` apart, and show the share of that time")
	command.Flags().BoolVar(&live, "watch", false, "show the node until Ctrl-C, and look at it every two seconds")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// maxOver is longer than anybody waits for a table.
const maxOver = time.Hour

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sample"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const sampleText = `Look once at what the slices of this node use, and write it into the timelines of their jobs: memory, and
the GPU time that vgpud has counted. vgpud runs it every ten seconds; a usage record has at most 240
points of each slice in the end.

With idle_after in config.yaml, slices that have had no GPU time for so long are logged, and with
idle_action: cancel a job all of whose slices are idle, and that has no other node, is cancelled. A slice
counts as idle only while vgpud runs and sees all its processes.

Exit codes: 0 done; 1 something went wrong; 2 wrong usage, 78 config.yaml is wrong.`

func sampleCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "sample",
		Short:   "Look at what slices use, for their history (root only)",
		Long:    sampleText,
		Example: "  vgpuctl sample",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			cfg, log, closer, err := o.asRoot("sample", "only root may write what jobs use")
			defer closer.Close()
			if err != nil {
				return err
			}
			return lookOnce(command.Context(), cfg, o.node, log, command.OutOrStdout())
		},
	}
}

func lookOnce(ctx context.Context, cfg config.Config, node string, log hclog.Logger, out io.Writer) error {
	bootID, err := inventory.BootID()
	if err != nil {
		return err
	}
	current, err := state.Of(cfg, bootID, log).Read()
	if err != nil {
		return fmt.Errorf("sample: %w", err)
	}
	if _, err := os.Lstat(cfg.RunDir); err != nil || len(current.Slices) == 0 {
		return nil //nolint:nilerr // no job has been here
	}
	counting, err := trusted.IsLocked(cfg.Run().VgpudLock())
	if err != nil {
		log.Warn("whether vgpud runs is not known, so that no slice that it counts is idle", "reason", err)
	}
	result, problem := sample.Sampler{Run: cfg.Run(), Counting: counting, Held: current.Slices, Now: time.Now(), IdleAfter: cfg.IdleAfter}.Look()
	if problem != nil {
		log.Warn("part of what slices use is not known", "reason", problem)
	}
	fmt.Fprintln(out, result)
	return actOnIdle(ctx, cfg, node, result.Idle, log)
}

// actOnIdle says once of each slice that it is idle, and cancels jobs that have nothing else.
func actOnIdle(ctx context.Context, cfg config.Config, node string, idle []sample.Idle, log hclog.Logger) (failed error) {
	asked := make(map[uint32]bool)
	for _, s := range idle {
		if s.New {
			log.Warn("a slice is idle", "job", s.Job, "user", userName(s.UID), "device", s.Device, "nvml_index", s.Index, "idle_seconds", int64(s.For.Seconds()))
		}
		if cfg.IdleAction != config.IdleCancel || !s.Alone || asked[s.Job] {
			continue
		}
		asked[s.Job] = true
		controller := slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Scancel: cfg.Slurm.Scancel, Timeout: idleTime}
		done, err := controller.CancelOnly(ctx, s.Job, node, fmt.Sprintf("vgpu: this job is cancelled: it has used no GPU time on %s for %s", node, age(s.For)))
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("sample: %w", err))
			log.Error("an idle job is not cancelled", "job", s.Job, "reason", err)
		} else if done {
			log.Warn("an idle job is cancelled", "job", s.Job)
		}
	}
	return failed
}

// idleTime bounds what a controller that does not answer takes of the time of the next look.
const idleTime = 5 * time.Second

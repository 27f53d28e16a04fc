// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/drained"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/queue"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sweep"
)

func sweepCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "sweep",
		Short: "Take away what jobs left whose prolog or epilog was killed",
		Long: `Take away what jobs left on this node whose prolog or epilog was killed: slices, folders, marks and
temporary files that are older than a minute and belong to no job that lives. Without a step on this
node a job may have ended, and the sweep queries slurmctld; without an answer the job's things stay. Then
the sweep lets the waiting jobs start that have room on a GPU here now. Slices of running jobs that the state
file has lost are put back into it from the jobs' grants.

Prologs do the same once a minute, for a few jobs at a time. vgpud runs this for the rest.`,
		Example: "  vgpuctl doctor    # says what waits\n  vgpuctl sweep",
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			cfg, log, closer, err := o.asRoot("sweep", "only root may change what jobs left")
			defer closer.Close()
			if err != nil {
				return err
			}
			sweeper, err := sweeperOf(cfg, o.node, log)
			if err != nil {
				return err
			}
			swept, err := sweeper.Sweep(command.Context())
			out := command.OutOrStdout()
			fmt.Fprintf(out, "taken away: %s\n", remains(swept.Slices, swept.Folders, swept.Marks, swept.Temporaries))
			if swept.Restored > 0 {
				fmt.Fprintf(out, "put back into the state file: %s of running jobs\n", plural(swept.Restored, "slice"))
			}
			if swept.Left > 0 {
				fmt.Fprintf(out, "%s may live and stay\n", plural(swept.Left, "job"))
			}
			err = errors.Join(err, lowerWalls(command.Context(), o, cfg))
			err = errors.Join(err, wakerOf(cfg, o.node, sweeper.Store, log).Wake(command.Context()))
			err = errors.Join(err, resume(command.Context(), cfg, o.node, sweeper.Store, out))
			if swept.Recorded {
				err = errors.Join(err, report.Start(cfg, o.configPath))
			}
			return err
		},
	}
}

// resume gives the node back that the prolog took out of Slurm's hands: the configuration is known here, the GPUs may be by now, and slices that were counted in
// another way may be gone.
func resume(ctx context.Context, cfg config.Config, node string, store state.Store, out io.Writer) error {
	causes := []drained.Cause{drained.ConfigUnknown}
	if inv, err := inventory.Read(cfg.Run().Inventory()); err == nil && inv.BootID == store.BootID {
		causes = append(causes, drained.GPUsUnknown)
	}
	if now, err := store.Read(); err == nil && store.CountedOtherwise(now.Slices, 0, cfg.Shards) == 0 {
		causes = append(causes, drained.MovedHalfway)
	}
	if cfg.Shards {
		causes = append(causes, drained.ShardsUnsaid)
	}
	done, err := drained.Resume(ctx, slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue}, cfg.Spool(), node, causes...)
	if done != "" {
		fmt.Fprintf(out, "%s is resumed, which was drained: %s\n", node, done)
	}
	return err
}

func sweeperOf(cfg config.Config, node string, log hclog.Logger) (sweep.Sweeper, error) {
	bootID, err := inventory.BootID()
	if err != nil {
		return sweep.Sweeper{}, err
	}
	return sweep.Sweeper{Config: cfg, Node: node, Store: state.Of(cfg, bootID, log), Log: log, Grace: sweep.Grace,
		Controller: slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: time.Minute}}, nil
}

func wakerOf(cfg config.Config, node string, store state.Store, log hclog.Logger) queue.Waker {
	return queue.Waker{Config: cfg, Node: node, Store: store, Log: log,
		Controller: slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: time.Minute}}
}

// remains is what ended jobs left, in words.
func remains(slices, folders, marks, temporaries int) string {
	return fmt.Sprintf("%s, %s, %s and %s", plural(slices, "slice"), plural(folders, "job folder"), plural(marks, "mark"),
		plural(temporaries, "temporary file"))
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-vgpu/slurm-vgpu/internal/audit"
	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/wall"
)

// wallWait bounds what a step waits for others that set limits.
const wallWait = time.Minute

// wallCommand is for the plugin and the epilog: neither they nor Slurm's processes may link NVML.
func wallCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:    "wall",
		Short:  "Have the driver hold a job's cgroup to the job's memory (isolation: wall)",
		Hidden: true,
		Args:   noCommand,
	}
	command.AddCommand(
		&cobra.Command{Use: "raise JOB FOLDER", Short: "Set the limits of a job's cgroup", Args: cobra.ExactArgs(2),
			RunE: func(command *cobra.Command, args []string) error {
				job, err := strconv.ParseUint(args[0], 10, 32)
				if err != nil {
					return exitError{exitUsage, fmt.Errorf("%q is no job id", args[0])}
				}
				return withKeeper(command.Context(), o, func(ctx context.Context, k wall.Keeper, cfg config.Config) error {
					return raise(ctx, k, cfg, uint32(job), args[1])
				})
			}},
		&cobra.Command{Use: "lower", Short: "Take away the limits of jobs that are over", Args: noArguments,
			RunE: func(command *cobra.Command, _ []string) error {
				return withKeeper(command.Context(), o, func(ctx context.Context, k wall.Keeper, cfg config.Config) error {
					_, err := k.Lower(ctx)
					return err
				})
			}})
	return command
}

// withKeeper starts NVML for somebody who sets limits.
func withKeeper(ctx context.Context, o *options, do func(context.Context, wall.Keeper, config.Config) error) error {
	cfg, err := o.held()
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("wall: only root sets limits of the driver's")
	}
	ctx, cancel := context.WithTimeout(ctx, wallWait)
	defer cancel()
	return asKeeper(cfg, func(k wall.Keeper) error { return do(ctx, k, cfg) })
}

func asKeeper(cfg config.Config, do func(wall.Keeper) error) error {
	driver, err := audit.OpenDriver(cfg)
	if err != nil {
		return err
	}
	defer driver.Close()
	inv, err := inventory.Read(cfg.Run().Inventory())
	if err != nil {
		return err
	}
	return do(wall.Keeper{Run: cfg.Run(), Driver: driver, GPUs: inventory.Leave(inv, cfg.SlurmGPUs).GPUs})
}

func raise(ctx context.Context, k wall.Keeper, cfg config.Config, job uint32, folder string) error {
	warnings, err := k.Raise(ctx, job, folder)
	if len(warnings) > 0 {
		log, closer := logOf(cfg, "wall")
		defer closer.Close()
		for _, warning := range warnings {
			log.Warn("a GPU that the job has no slice of is closed to it by masks alone", "job", job, "reason", warning)
		}
	}
	return err
}

// raiseAgain is for a job whose grant has changed.
func raiseAgain(ctx context.Context, o *options, job uint32) error {
	cfg, err := o.held()
	if err != nil {
		return err
	}
	w, err := grant.ReadWall(cfg.Run().Wall(job))
	if err != nil || !w.Stands() { // none of its steps has begun, or all have ended
		return nil
	}
	return withKeeper(ctx, o, func(ctx context.Context, k wall.Keeper, cfg config.Config) error {
		return raise(ctx, k, cfg, job, w.Cgroup)
	})
}

// lowerWalls is for who sweeps anyway. Without a wall NVML is not started.
func lowerWalls(ctx context.Context, o *options, cfg config.Config) error {
	if entries, err := os.ReadDir(cfg.Run().Walls()); err != nil || len(entries) == 0 {
		return nil
	}
	return withKeeper(ctx, o, func(ctx context.Context, k wall.Keeper, _ config.Config) error {
		_, err := k.Lower(ctx)
		return err
	})
}

// toldBy asks the driver what a job has, where there is a wall.
func toldBy(cfg config.Config, driver audit.Driver) func(audit.Slice) (uint64, bool) {
	return func(s audit.Slice) (uint64, bool) {
		w, err := grant.ReadWall(cfg.Run().Wall(s.Job))
		if err != nil || !w.Raised || !w.Stands() {
			return 0, false
		}
		now, err := driver.Limit(s.Device, w.Cgroup)
		return now.UsedBytes, err == nil
	}
}

// measure keeps for the records what the driver says by now.
func measure(ctx context.Context, cfg config.Config) error {
	if entries, err := os.ReadDir(cfg.Run().Walls()); err != nil || len(entries) == 0 {
		return nil
	}
	return asKeeper(cfg, func(k wall.Keeper) error { return k.Measure(ctx) })
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/installed"
	"github.com/slurm-vgpu/slurm-vgpu/internal/inventory"
	"github.com/slurm-vgpu/slurm-vgpu/internal/logging"
	"github.com/slurm-vgpu/slurm-vgpu/internal/queue"
	"github.com/slurm-vgpu/slurm-vgpu/internal/release"
	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// lockWait is how long an epilog queues behind others: each of them holds the lock for milliseconds.
const lockWait = 30 * time.Second

func run(configPath string) int {
	held := config.LoadHeld(configPath)
	cfg := held.Config.ForNode(config.NodeName())
	log, closer, err := logging.New("vgpu-epilog", cfg.Log)
	defer closer.Close()
	if err != nil {
		log.Error("the log goes to stderr", "reason", err)
	}
	for _, problem := range held.Problems {
		log.Error(held.Standing.String(), "file", problem.File, "key", problem.Key, "reason", problem.Error())
	}
	job, err := strconv.ParseUint(os.Getenv("SLURM_JOB_ID"), 10, 32)
	if err != nil || job == 0 {
		log.Error("not started by slurmd as its Epilog", "reason", fmt.Sprintf("SLURM_JOB_ID is %q, not a number", os.Getenv("SLURM_JOB_ID")))
		return exitUsage
	}
	log = log.With("job", job)
	released, err := releaseJob(context.Background(), cfg, uint32(job), log)
	if err != nil {
		log.Error("the job's slices wait for the next prolog to free them", "reason", err)
	}
	if err := lowerWall(cfg, uint32(job), configPath); err != nil {
		log.Error("the driver's limits of the job stay on its cgroup until the next sweep", "reason", err)
	}
	if err := wakeWaiting(context.Background(), cfg, log); err != nil {
		log.Error("jobs that wait for room may not know of it until the next epilog", "reason", err)
	}
	if released.recorded {
		if err := report.Start(cfg, configPath); err != nil {
			log.Error("the usage record waits in the spool for the next reporter", "reason", err)
		}
	}
	return exitOK
}

// lowerWall takes away what the driver holds the job to. Most often Slurm has removed the job's cgroup by now, and its limits with it.
func lowerWall(cfg config.Config, job uint32, configPath string) error {
	w, err := grant.ReadWall(cfg.Run().Wall(job))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil && !w.Stands() {
		return os.Remove(cfg.Run().Wall(job))
	}
	// NVML can hang, so nobody waits for it.
	return errors.Join(err, installed.Start(configPath, "wall", "lower"))
}

// released is what there was of a job.
type released struct {
	known    bool // it held something here, or was refused it
	recorded bool // a record waits in the spool
}

// releaseJob ends the job's run on this node.
func releaseJob(ctx context.Context, cfg config.Config, job uint32, log hclog.Logger) (was released, err error) {
	bootID, err := inventory.BootID()
	if err != nil {
		return was, err
	}
	store := state.Of(cfg, bootID, log)
	was.known, err = holdsAnything(store, job)
	if err != nil || !was.known {
		return was, err
	}
	waiting, cancel := context.WithTimeout(ctx, lockWait)
	defer cancel()
	tx, err := store.Begin(waiting)
	if err != nil {
		return was, err
	}
	defer tx.End()
	// The restart count that slurmd gives an epilog is that of the next run when the job was
	// requeued, so it cannot tell the runs apart. It need not: none begins before this epilog ends.
	result, err := release.Runs(cfg, tx, []uint32{job}, func(run state.Run) bool { return run.Job == job }, log)
	if err == nil && len(result.Freed) > 0 {
		log.Info("slices released", "slices", len(result.Freed), "recorded", result.Recorded)
	}
	was.recorded = result.Recorded
	return was, err
}

// wakeTime bounds what an epilog spends on other jobs: the node is busy for Slurm until it ends.
const wakeTime = 20 * time.Second

// wakeWaiting tells the jobs that wait for room on this node, if there are any.
func wakeWaiting(ctx context.Context, cfg config.Config, log hclog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, wakeTime)
	defer cancel()
	bootID, err := inventory.BootID()
	if err != nil {
		return err
	}
	return queue.Waker{Config: cfg, Node: config.NodeName(), Store: state.Of(cfg, bootID, log), Log: log,
		Controller: slurm.Client{Scontrol: cfg.Slurm.Scontrol, Squeue: cfg.Slurm.Squeue, Timeout: wakeTime / 2}}.Wake(ctx)
}

// holdsAnything spares jobs without vgpu the lock: their mark goes away, and that is all.
func holdsAnything(store state.Store, job uint32) (bool, error) {
	_ = os.Remove(store.Dir.Pending(job)) // of a prolog that was killed
	if _, err := os.Lstat(store.Dir.Job(job)); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	if err := os.Remove(store.Dir.None(job)); err == nil {
		return false, nil
	}
	current, err := store.Read()
	if errors.Is(err, state.ErrCorrupt) {
		return true, nil // repaired under the lock
	}
	for _, s := range current.Slices {
		if s.Job == job {
			return true, nil
		}
	}
	return false, err
}

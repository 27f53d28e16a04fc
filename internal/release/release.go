// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

// Package release ends a run of a job on this node: what it used goes into the spool, its slices
// become free, its folder goes away. vgpu-epilog does it; vgpu-prolog does it for runs whose
// epilog never came.
package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/crashpoint"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/pages"
	"github.com/slurm-vgpu/slurm-vgpu/internal/rundir"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/timeline"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// maxSteps bounds a record's steps; the newest are kept.
const maxSteps = 256

// Result says what became of a run.
type Result struct {
	Freed    []state.Slice
	Recorded bool // a usage record waits in the spool
}

// Runs releases the runs for which which is true: runs with slices, and the given jobs, which may have
// only a folder. The order makes a death at any point harmless, and a full run directory
// free itself: first the record, which a second try replaces as long as there is a grant; then the
// folders, the grant before the rest; then the state, for which there is room by then. The next sweep
// finds slices that a death leaves without a grant. The caller holds the lock.
func Runs(cfg config.Config, tx *state.Tx, jobs []uint32, which func(state.Run) bool, log hclog.Logger) (Result, error) {
	var result Result
	folders := make(map[uint32]bool)
	for _, job := range jobs {
		folders[job] = true
	}
	result.Freed = tx.Drop(which)
	for _, s := range result.Freed {
		folders[s.Job] = true
	}
	for job := range folders {
		g, err := grant.Read(cfg.Run().Grant(job))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			log.Error("the job's grant cannot be read, its use is not recorded", "job", job, "reason", err)
			continue
		case !which(state.Run{Job: g.Job, Restart: g.Restart}):
			delete(folders, job) // the folder is another run's
			continue
		}
		if g.Whole && g.Refusal == "" { // nothing counted what it used, and Slurm accounts for the GPUs by itself
			continue
		}
		if err := usage.Write(cfg.Spool(), record(cfg, g, log)); err != nil {
			log.Error("the job's use is not recorded", "job", job, "reason", err)
			continue
		}
		result.Recorded = true
	}
	crashpoint.At("release/recorded")
	var failed error
	for job := range folders {
		failed = errors.Join(failed, removeFolder(cfg.Run(), job))
	}
	if err := tx.Commit(); err != nil {
		return result, fmt.Errorf("release slices: %w", errors.Join(err, failed))
	}
	crashpoint.At("release/committed")
	if failed != nil {
		failed = fmt.Errorf("release slices: %w", failed)
	}
	return result, failed
}

// removeFolder takes a job's files away, and what they hold of the run directory.
func removeFolder(dir rundir.Dir, job uint32) (failed error) {
	if err := os.Remove(dir.Grant(job)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		failed = errors.Join(failed, err)
	}
	crashpoint.At("release/grant-removed")
	failed = errors.Join(failed, pages.Remove(dir.Pages(job)))
	crashpoint.At("release/pages-removed")
	for _, path := range []string{dir.Job(job), dir.None(job)} {
		failed = errors.Join(failed, os.RemoveAll(path))
		crashpoint.At("release/folder-removed")
	}
	return failed
}

func record(cfg config.Config, g grant.Grant, log hclog.Logger) usage.Record {
	rec := usage.Record{Job: g.Job, Restart: g.Restart, Node: g.Node, UID: g.UID, Submitted: g.Submitted, Start: g.Since,
		End: time.Now().UTC(), Request: g.Request, Policy: g.Policy, Entitlement: g.Entitlement, Refusal: g.Refusal, Requeued: g.Requeued,
		Backfill: g.HasText}
	if g.Refusal != "" {
		return rec
	}
	used, err := usage.Collect(cfg.Run(), g)
	if err = errors.Join(err, used.Spoiled); err != nil {
		log.Warn("part of the job's usage cannot be trusted", "job", g.Job, "reason", err)
	}
	for _, s := range g.Slices {
		rec.Devices = append(rec.Devices, usage.Device{Device: s.Device, Index: s.Index, MemMiB: s.MemMiB, SMPercent: s.SMPercent, Priority: s.Priority, Earlier: g.Earlier[s.Device]})
	}
	history, err := timeline.Read(cfg.Run().Timeline(g.Job), usage.TimelineRun(g))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the job's usage over time cannot be trusted", "job", g.Job, "reason", err)
	}
	rec.Complete(history, used, cfg.IdleAfter)
	for _, step := range used.Steps[max(0, len(used.Steps)-maxSteps):] {
		rec.Steps = append(rec.Steps, usage.StepOf(step))
	}
	return rec
}

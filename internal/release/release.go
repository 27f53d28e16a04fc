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
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
	"github.com/slurm-vgpu/slurm-vgpu/internal/usage"
)

// maxSteps bounds a record's steps; the newest are kept.
const maxSteps = 256

// Result says what became of a run.
type Result struct {
	Freed    []state.Slice
	Recorded bool // a usage record waits in the spool
}

// Runs releases every run that which selects, among those that hold slices and the given jobs that
// may have but a folder. The order makes a death at any point harmless: first the record, which a
// second try replaces; then the state, the point of no return; then the folders, which nobody needs
// any more. The lock stays with the caller.
func Runs(cfg config.Config, tx *state.Tx, jobs []uint32, which func(state.Run) bool, log hclog.Logger) (Result, error) {
	var result Result
	folders := make(map[uint32]bool)
	for _, job := range jobs {
		folders[job] = true
	}
	result.Freed = tx.Drop(func(s state.Slice) bool { return which(s.Run()) })
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
		case g.Requeued: // the run that will count is yet to come
			if err := usage.Keep(cfg.Spool(), record(cfg, g, log), usage.OutcomeRequeued); err != nil {
				log.Error("the job's refusal is not kept", "job", job, "reason", err)
			}
			continue
		}
		if err := usage.Write(cfg.Spool(), record(cfg, g, log)); err != nil {
			log.Error("the job's use is not recorded", "job", job, "reason", err)
			continue
		}
		result.Recorded = true
	}
	crashpoint.At("release/recorded")
	if err := tx.Commit(); err != nil {
		return result, fmt.Errorf("release slices: %w", err)
	}
	crashpoint.At("release/committed")
	var failed error
	for job := range folders {
		for _, path := range []string{cfg.Run().Job(job), cfg.Run().None(job), cfg.Run().Pending(job)} {
			if err := os.RemoveAll(path); err != nil {
				failed = errors.Join(failed, fmt.Errorf("release slices: %w", err))
			}
			crashpoint.At("release/folder-removed")
		}
	}
	return result, failed
}

func record(cfg config.Config, g grant.Grant, log hclog.Logger) usage.Record {
	rec := usage.Record{Job: g.Job, Restart: g.Restart, Node: g.Node, UID: g.UID, Start: g.Since, End: time.Now().UTC(),
		Request: g.Request, Entitlement: g.Entitlement, Refusal: g.Refusal}
	if g.Refusal != "" {
		return rec
	}
	used, err := grant.CollectUsage(cfg.Run(), g)
	if err != nil {
		log.Warn("part of what the job used cannot be believed", "job", g.Job, "reason", err)
	}
	for i, s := range g.Slices {
		rec.Devices = append(rec.Devices, usage.Device{Device: s.Device, Index: s.Index, MemMiB: s.MemMiB, SMPercent: s.SMPercent,
			PeakMiB: usage.MiB(used.Devices[i].PeakBytes), Refusals: used.Devices[i].Refusals, Time: usage.TimeOf(used.Devices[i])})
	}
	for _, step := range used.Steps[max(0, len(used.Steps)-maxSteps):] {
		rec.Steps = append(rec.Steps, usage.Step{Step: step.Step, Devices: usage.PeaksOf(step.Devices)})
	}
	return rec
}

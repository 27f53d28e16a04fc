// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/queue"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
	"github.com/slurm-vgpu/slurm-vgpu/internal/state"
)

// source is where a job's GPUs come from: by shards Slurm has picked them (slurmPicks), by counts the node picks them, and has a queue (queue.Own).
type source interface {
	// Place chooses among the GPUs, under the lock of the state.
	Place(tx *state.Tx, want place.Want, inventory device.Inventory) ([]device.Slice, *place.Refusal)
	// Fewer says, after a refusal, whether less is in the way now, so that another try may help.
	Fewer(ctx context.Context) bool
	// NoRoom says whether a batch job goes back into Slurm's queue.
	NoRoom(ctx context.Context, g grant.Grant, want place.Want, inventory device.Inventory, refusal *place.Refusal, told slurm.Job) bool
	// Waits says that it does so however often; else max_requeues times.
	Waits() bool
	// Refused is called when the refusal is written down, under the lock.
	Refused()
	// Back is called when the job is in Slurm's queue again, Stayed when it could not be put there.
	Back(ctx context.Context, told slurm.Job)
	Stayed(ctx context.Context)
}

func (p *prolog) sourceOf() source {
	rules := place.RulesOf(p.cfg.SlicesPerGPU, p.cfg.MemOvercommit, p.cfg.Drain, p.cfg.LatencyPerGPU, p.cfg.Place)
	if p.cfg.Shards {
		rules.SlicesPerGPU = config.MaxSlicesPerGPU // Slurm counts slices by node
		return slurmPicks{rules}
	}
	return &queue.Own{Waker: p.waker(), Slurm: p.controller, Job: p.job.id, Rules: rules}
}

// waker is not of the source: whatever became of this job, others may wait.
func (p *prolog) waker() queue.Waker {
	return queue.Waker{Config: p.cfg, Node: p.node, Store: p.store, Controller: p.controller, Log: p.log}
}

// slurmPicks: the want names the GPUs that Slurm picked, and it is Slurm that decides who goes first. Where one has no room, Slurm's counts and the
// node's do not agree, for a moment as a rule: the job comes back some times.
type slurmPicks struct{ rules place.Rules }

func (s slurmPicks) Place(tx *state.Tx, want place.Want, inventory device.Inventory) ([]device.Slice, *place.Refusal) {
	return place.Place(inventory, place.SlicesOf(tx.Held()), want, s.rules)
}

func (slurmPicks) Fewer(context.Context) bool { return false }

func (slurmPicks) NoRoom(context.Context, grant.Grant, place.Want, device.Inventory, *place.Refusal, slurm.Job) bool {
	return true
}

func (slurmPicks) Waits() bool                     { return false }
func (slurmPicks) Refused()                        {}
func (slurmPicks) Back(context.Context, slurm.Job) {}
func (slurmPicks) Stayed(context.Context)          {}

// noRoom decides about a job that fits no GPU now. A batch job may wait for one; another one is told what would fit.
func (p *prolog) noRoom(ctx context.Context, g grant.Grant, want place.Want, inventory device.Inventory, refusal *place.Refusal, told slurm.Job) error {
	p.because(refusal.Kind)
	if !p.mayRequeue(told) {
		reason := refusal.Reason
		if !told.Batch && refusal.Kind != place.Never {
			reason += "; a batch job would wait, --exclude=" + p.node + " tries other nodes"
			if refusal.FitsMiB > 0 && !g.Whole {
				reason += fmt.Sprintf(", and --vgpu-mem=%s fits here now", request.Mem{MiB: refusal.FitsMiB}.Typed())
			}
		}
		return p.refuse(ctx, g, reason, nil)
	}
	if !p.gpus.NoRoom(ctx, g, want, inventory, refusal, told) {
		return p.refuse(ctx, g, refusal.Reason, nil)
	}
	return p.refuse(ctx, g, refusal.Reason, &told)
}

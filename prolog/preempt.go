// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/slurm-vgpu/slurm-vgpu/internal/config"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// victims are the jobs that Slurm would have ended for this one, if it had known that they are in its way: by its
// counts there is room.
func (p *prolog) victims(ctx context.Context, want place.Want, inventory device.Inventory) (victims []slurm.Preemption) {
	snapshot, err := p.store.Read()
	if err != nil {
		p.log.Warn("nobody is preempted", "reason", err)
		return nil
	}
	var held []place.Held
	var others []uint32
	for _, s := range snapshot.Slices {
		held = append(held, place.Held{Slice: s.Slice, Job: s.Job})
		others = append(others, s.Job)
	}
	may, err := p.controller.Preemptible(ctx, p.job.id, others)
	if err != nil {
		p.log.Warn("nobody is preempted", "reason", err)
		return nil
	}
	jobs := make(map[uint32]bool)
	for job := range may {
		jobs[job] = true
	}
	for _, job := range place.Victims(inventory, held, want, p.rules(), jobs) {
		victims = append(victims, may[job])
	}
	return victims
}

// preempt ends the jobs that are in the way of one that waits. Their epilogs tell it.
func (p *prolog) preempt(ctx context.Context) {
	for _, victim := range p.wait.victims {
		if err := p.controller.Preempt(ctx, victim); err != nil {
			p.log.Error("a job that is in the way stays", "victim", victim.Name, "reason", err)
			continue
		}
		p.log.Warn("a job was preempted, as slurm.conf says, because no GPU had room", "victim", victim.Name, "requeued", victim.Requeue)
	}
}

func (p *prolog) rules() place.Rules {
	perGPU := p.cfg.SlicesPerGPU
	if p.cfg.Shards { // Slurm counts slices by node
		perGPU = config.MaxSlicesPerGPU
	}
	return place.RulesOf(perGPU, p.cfg.MemOvercommit, p.cfg.Drain, p.cfg.LatencyPerGPU, p.cfg.Place)
}

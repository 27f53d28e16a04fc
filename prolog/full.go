// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

// fullFor is how long a job stays away that has no other node: nobody tells it of room.
const fullFor = 10 * time.Minute

// isFull says that the run directory has no room, for bytes or for files.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// refuseForLackOfSpace: that one job cannot be written down does not break the node, whose state is
// what it was. A batch job tries another node, or this one later. Where not even the refusal has room, a step asks this program again
// and is told.
func (p *prolog) refuseForLackOfSpace(ctx context.Context, reason error) error {
	if _, err := p.store.Read(); err != nil {
		return errors.Join(reason, err)
	}
	text := fmt.Sprintf("the node has no room to keep what the job would hold: %v", reason)
	var told *slurm.Job
	if p.mayRequeue(p.told) {
		elsewhere, err := p.controller.Elsewhere(ctx, p.told, p.node)
		if err != nil {
			p.log.Warn("the job waits for this node, without trying others", "reason", err)
		}
		told, p.gpus = &p.told, sentAway{p: p, elsewhere: elsewhere, reason: text}
	}
	g := p.newGrant(request.Entitlement{})
	err := p.refuse(ctx, g, text, told)
	if !isFull(err) {
		return err
	}
	p.log.Warn("job refused, and the refusal cannot be kept", "restart", p.job.restart, "reason", err)
	if told != nil {
		if err := p.requeue(ctx, g, *told); err != nil {
			p.log.Error("the job fails instead of going back into the queue", "reason", err)
		} else {
			p.gpus.Back(ctx, *told)
		}
	}
	grant.SayRefused(os.Stdout, text)
	return nil
}

// sentAway is for a job that a full node can write nothing down about: it goes to another one, or comes back after a while.
type sentAway struct {
	slurmPicks // nothing is placed
	p          *prolog
	elsewhere  bool // there are other nodes for it
	reason     string
}

func (sentAway) Waits() bool { return true }

// Back says when and where the job may start again.
func (s sentAway) Back(ctx context.Context, told slurm.Job) {
	w := slurm.Wait{For: fullFor, Reason: s.p.node + ": " + s.reason}
	if s.elsewhere {
		w = slurm.Wait{For: slurm.Soon, Reason: w.Reason, Elsewhere: true, Excluded: slurm.With(told.Excluded, s.p.node)}
	}
	if err := s.p.controller.Wait(ctx, told, w); err != nil {
		s.p.log.Error("the job comes back after Slurm's own delay", "reason", err)
	}
}

// markNone leaves the mark of a job without vgpu, for which the mark of this prolog has room.
func (p *prolog) markNone() error {
	dir := p.cfg.Run()
	err := os.Rename(dir.Pending(p.job.id), dir.None(p.job.id))
	if err != nil {
		err = touch(dir.None(p.job.id))
	}
	if isFull(err) {
		p.log.Warn("the job has no vgpu, and that cannot be kept", "reason", err)
		grant.SayNone(os.Stdout)
		return nil
	}
	if err != nil {
		return fmt.Errorf("mark job without vgpu: %w", err)
	}
	return nil
}

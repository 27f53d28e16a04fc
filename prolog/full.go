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
	"github.com/slurm-vgpu/slurm-vgpu/internal/waiting"
)

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
		told, p.wait = &p.told, &wait{node: p.node, elsewhere: elsewhere, job: waiting.Job{Reason: text}, never: true, unlisted: true}
		p.expected = time.Now()
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
			p.letWait(ctx, *told)
		}
	}
	grant.SayRefused(os.Stdout, text)
	return nil
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

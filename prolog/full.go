// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// isFull says that the run directory has no room, for bytes or for files.
func isFull(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT)
}

// refuseForLackOfSpace: that one job cannot be written down does not break the node, whose state is
// what it was. Where not even the refusal has room, a step asks this program again and is told.
func (p *prolog) refuseForLackOfSpace(ctx context.Context, reason error) error {
	if _, err := p.store.Read(); err != nil {
		return errors.Join(reason, err)
	}
	text := fmt.Sprintf("the node has no room to keep what the job would hold: %v", reason)
	err := p.refuse(ctx, p.newGrant(request.Entitlement{}), text, nil)
	if isFull(err) {
		p.log.Warn("job refused, and the refusal cannot be kept", "restart", p.job.restart, "reason", err)
		grant.SayRefused(os.Stdout, text)
		return nil
	}
	return err
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

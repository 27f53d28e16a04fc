// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
)

// Cancel ends a job that runs, with a word to its user: a task of an array alone, a heterogeneous job as a whole. One
// that has ended, or begins anew, is left alone, and so is one that is not on this node any more: what its last run left
// there is not this run's doing. done says that it was cancelled.
func (c Client) Cancel(ctx context.Context, id uint32, node, why string) (done bool, err error) {
	return c.cancel(ctx, id, node, why, func(Job) bool { return true })
}

// CancelOnly is Cancel of a job that has this node and no other. One with more nodes or components is left alone, for what is true here
// need not be true there.
func (c Client) CancelOnly(ctx context.Context, id uint32, node, why string) (done bool, err error) {
	return c.cancel(ctx, id, node, why, func(job Job) bool { return job.numNodes == 1 && job.HetJobID == 0 })
}

func (c Client) cancel(ctx context.Context, id uint32, node, why string, may func(Job) bool) (done bool, err error) {
	job, err := c.Job(ctx, id)
	if err != nil {
		return false, fmt.Errorf("cancel job %d: %w", id, err)
	}
	if !job.Runs() || !job.On(node) || !may(job) {
		return false, nil
	}
	name, err := job.Name()
	if err != nil {
		return false, fmt.Errorf("cancel job %d: %w", id, err)
	}
	attempt, end := context.WithTimeout(ctx, attemptTime)
	defer end()
	// The word is for people: a job that nobody listens to is cancelled all the same.
	_, notified := run(attempt, c.Scontrol, "notify", name, why)
	err = retry(ctx, c.Timeout, func(ctx context.Context) error {
		_, err := run(ctx, c.Scancel, name)
		if err != nil && !unreachable(err) {
			err = fmt.Errorf("%w: %w", errRefused, err)
		}
		return err
	})
	if errors.Is(err, ErrUnknownJob) { // it has ended meanwhile
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cancel job %d: %w", id, errors.Join(err, notified))
	}
	return true, nil
}

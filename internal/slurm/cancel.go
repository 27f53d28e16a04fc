// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// holdsNodes are the states of a job whose processes have its nodes and that nobody ends. STOPPED is what the job's own user makes
// of RUNNING by `scancel --signal=STOP`, and it stays so until SIGCONT (tried with 22.05.8).
var holdsNodes = []string{"RUNNING", "CONFIGURING", "STOPPED", "SIGNALING", "RESIZING", "SUSPENDED"}

// Cancel ends a job that runs, with a word to its user: a task of an array alone, a heterogeneous job as a whole. One
// that has ended, or begins anew, is left alone, and so is one that is not on this node any more: what its last run left
// there is not this run's doing. done says that it was cancelled.
//
// The answer is squeue's, without any text of a user: a job that imitates scontrol's output is cancelled as well.
func (c Client) Cancel(ctx context.Context, id uint32, node, why string) (done bool, err error) {
	return c.cancel(ctx, id, node, why, false)
}

// CancelOnly is Cancel of a job that has this node and no other. One with more nodes or components is left alone, for what is true here
// need not be true there.
func (c Client) CancelOnly(ctx context.Context, id uint32, node, why string) (done bool, err error) {
	return c.cancel(ctx, id, node, why, true)
}

func (c Client) cancel(ctx context.Context, id uint32, node, why string, alone bool) (done bool, err error) {
	var cells []string
	err = retry(ctx, c.Timeout, func(ctx context.Context) error {
		jobs, err := c.squeue(ctx, []uint32{id}, "all", "%i|%T|%N")
		cells = jobs[id]
		return err
	})
	if err != nil {
		return false, fmt.Errorf("cancel job %d: %w", id, err)
	}
	if cells == nil || !slices.Contains(holdsNodes, cells[1]) || !HostlistContains(cells[2], node) ||
		alone && (cells[2] != node || strings.Contains(cells[0], "+")) {
		return false, nil
	}
	name, _, _ := strings.Cut(cells[0], "+") // of a component, the whole
	if !singleName().MatchString(name) {
		return false, fmt.Errorf("cancel job %d: squeue calls it %q", id, cells[0])
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

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package slurm

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/slurm-vgpu/slurm-vgpu/internal/pattern"
)

// Whole is the job that Slurm starts, ends and requeues as one: a component's heterogeneous job, and
// everything else itself.
//
// Slurm refuses to requeue a component other than the first ("Job not heterogeneous job leader"), and
// takes all of them back with that (slurmctld/job_mgr.c, _job_requeue; tried with 22.05.8).
func (j Job) Whole() uint32 {
	if j.HetJobID != 0 {
		return j.HetJobID
	}
	return j.ID
}

// Requeue puts a running batch job back into the queue. Slurm lets it start again after a delay.
// It is tried again only while the controller cannot be reached: what it refuses, it refuses for good.
//
// A job that has ended meanwhile stays as it is ("Incomplete"): a cancelled one must not come back.
func (c Client) Requeue(ctx context.Context, job Job) error {
	name, err := job.Name()
	if err != nil {
		return fmt.Errorf("requeue job %d: %w", job.ID, err)
	}
	var refusal error
	err = retry(ctx, c.Timeout, func(ctx context.Context) error {
		_, err := run(ctx, c.Scontrol, "requeue", "Incomplete", name)
		if err != nil && ctx.Err() == nil && !unreachable(err) {
			refusal, err = err, nil
		}
		return err
	})
	if err = errors.Join(err, refusal); err != nil {
		return fmt.Errorf("requeue job %d: %w", job.ID, err)
	}
	return nil
}

// taskNumber is one task of an array, neither a range nor a list of them.
var taskNumber = pattern.Late(`^[0-9]{1,10}$`)

// Name names this job to scontrol and no other, a component's heterogeneous job as a whole. A number alone will not do for a task:
// the one that is split off last keeps the array's id, and that means every task, those that run and
// those that are done.
func (j Job) Name() (string, error) {
	switch {
	case j.ID == 0:
		return "", errors.New("it is not known which job that is")
	case j.ArrayJobID == 0:
		return strconv.FormatUint(uint64(j.Whole()), 10), nil
	case !taskNumber().MatchString(j.ArrayTaskID):
		return "", fmt.Errorf("it stands for the tasks %q of array %d", j.ArrayTaskID, j.ArrayJobID)
	}
	return fmt.Sprintf("%d_%s", j.ArrayJobID, j.ArrayTaskID), nil
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package state

import (
	"context"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

// graceTime is how old a slice must be before its job's life is doubted: its prolog may still run,
// and its first step not be there yet.
const graceTime = time.Minute

// Controller says whether a job, in one of its runs, is over.
type Controller interface {
	Finished(ctx context.Context, job uint32, restart int) (bool, error)
}

// Run is one run of a job.
type Run struct {
	Job     uint32
	Restart int
}

// Run is the run that holds the slice.
func (s Slice) Run() Run { return Run{s.Job, s.Restart} }

// Doubtful returns the runs that hold slices although nothing shows that they live: older than a
// minute and without a step on this node. live are the jobs that have one.
func Doubtful(slices []Slice, live map[uint32]bool, now time.Time) (runs []Run) {
	seen := make(map[Run]bool)
	for _, s := range slices {
		if !live[s.Job] && trusted.AgeAt(now, s.Since.Time()) >= graceTime && !seen[s.Run()] {
			seen[s.Run()] = true
			runs = append(runs, s.Run())
		}
	}
	return runs
}

// Over asks the controller which of these runs are over. A run of which it says nothing before the context ends is not in the answer. Call it
// without the lock: the controller may take its time.
func Over(ctx context.Context, runs []Run, controller Controller) (over map[Run]bool, err error) {
	over = make(map[Run]bool)
	for _, run := range runs {
		finished, askErr := controller.Finished(ctx, run.Job, run.Restart)
		if askErr == nil {
			over[run] = finished
		} else if err = askErr; ctx.Err() != nil {
			break
		}
	}
	return over, err
}

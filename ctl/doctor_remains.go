// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/slurm-vgpu/slurm-vgpu/internal/trusted"
)

const (
	// remainsTime bounds the questions to the controller.
	remainsTime = 15 * time.Second
	// remainsAge is how long what ended jobs left may lie there: prologs take some of it away at once,
	// vgpud has all of it swept within minutes.
	remainsAge = 3 * time.Hour
)

// remains counts what jobs left whose prolog or epilog was killed.
func (d *doctor) remains(ctx context.Context) {
	const check = "remains"
	sweeper, err := sweeperOf(d.config, d.node, hclog.NewNullLogger())
	if err != nil {
		d.Bad(check, "run it as root", "%v", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, remainsTime)
	defer cancel()
	waiting, err := sweeper.Count(ctx)
	found := remains(waiting.Slices, waiting.Folders, waiting.Marks, waiting.Temporaries)
	switch {
	case errors.Is(err, fs.ErrPermission):
		d.Warn(check, asRoot, "not checked: needs root")
	case err != nil:
		d.Bad(check, "name SlurmdSpoolDir of slurm.conf in slurm.slurmd_spool_dir, and run it as root", "%v", err)
	case waiting.Slices > 0:
		d.Bad(check, "vgpuctl sweep; the next job's prolog does it as well", "%s of jobs that have ended; jobs that hold slices: %v", found, waiting.Jobs)
	case waiting.Any() && trusted.Age(waiting.Oldest) > remainsAge:
		d.Bad(check, "vgpuctl sweep, and see that vgpud runs", "%s of jobs that have ended, the oldest for %s", found, age(time.Since(waiting.Oldest)))
	case waiting.Any():
		d.OK(check, "%s of jobs that have ended; the next sweep takes them away", found)
	case waiting.Unknown > 0:
		d.Warn(check, "see that slurmctld answers", "the controller does not say of %s whether they live", plural(waiting.Unknown, "job"))
	default:
		d.OK(check, "nothing of ended jobs")
	}
}

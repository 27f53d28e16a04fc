// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/report"
	"github.com/slurm-vgpu/slurm-vgpu/internal/sweep"
)

// Bounds of a prolog's sweep of what other jobs left: this job waits for it. vgpud sweeps the rest.
const (
	sweepEvery = time.Minute
	sweepTime  = 2 * time.Second
	sweepMost  = 8
)

// sweep takes away what killed prologs and epilogs of other jobs left.
func (p *prolog) sweep(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	swept, err := sweep.Sweeper{Config: p.cfg, Node: p.node, Store: p.store, Controller: p.controller, Log: p.log,
		Grace: sweep.Grace, Every: sweepEvery, Most: sweepMost}.Sweep(limited)
	if err != nil {
		p.log.Warn("not all that ended jobs left is taken away", "reason", err)
	}
	if swept.Any() {
		p.log.Warn("slices or files that ended jobs left were taken away", "slices_put_back", swept.Restored, "slices", swept.Slices, "folders", swept.Folders,
			"marks", swept.Marks, "temporary_files", swept.Temporaries, "in_doubt", swept.Left)
	}
	if swept.Looked { // an epilog that was killed told nobody
		if err := p.waker().Wake(limited); err != nil {
			p.log.Warn("jobs that wait for room may not know of it yet", "reason", err)
		}
	}
	p.recorded = p.recorded || swept.Recorded
	if p.recorded {
		if err := report.Start(p.cfg, p.opts.configPath); err != nil {
			p.log.Error("a usage record waits in the spool for the next reporter", "reason", err)
		}
	}
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/place"
	"github.com/slurm-vgpu/slurm-vgpu/internal/tally"
)

// count tells who watches the node of a job that was placed or refused.
func (p *prolog) count(took time.Duration) {
	if !p.placed && p.refusedFor == "" {
		return
	}
	if err := tally.Add(p.cfg.Run(), p.store.BootID, p.refusedFor, took); err != nil {
		p.log.Warn("the metrics do not count this prolog", "reason", err)
	}
}

// because says why a job is refused that no GPU has room for.
func (p *prolog) because(kind place.Kind) {
	switch kind {
	case place.Fragmented:
		p.refusedFor = tally.Fragmentation
	case place.Unavailable:
		p.refusedFor = tally.Unavailable
	case place.Never:
		p.refusedFor = tally.Never
	}
}

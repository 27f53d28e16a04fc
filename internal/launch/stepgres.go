// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"errors"
	"fmt"

	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// parse returns nil where nothing is known. Where Slurm picked the job's GPU by shards, a step needs some of them as well, or it
// may open no GPU; of one that names no memory they are the MiB, as far as its job has them.
func (g StepGRES) parse(held grant.Grant) (*request.Entitlement, error) {
	if !g.Known {
		return nil, nil
	}
	if other, err := request.ParseGRES(g.Otherwise); err != nil || !other.IsZero() {
		return nil, errors.New("vgpu, gpumem and gpucores are counted per node only: use --gres=vgpu:N on srun")
	}
	given, err := request.ParseGRES(g.PerNode)
	if err != nil {
		return nil, fmt.Errorf("GRES of the step: %w", err)
	}
	if held.Shards == 0 {
		return &given, nil
	}
	shards, err := request.ParseShards(g.PerNode)
	if err != nil {
		return nil, fmt.Errorf("GRES of the step: %w", err)
	}
	switch {
	case shards.Count == 0 && !given.IsZero():
		return nil, fmt.Errorf("--gres=%s: the step has no shards, and so no GPU: add shard:N, one for each MiB", named(given))
	case shards.Count > 0 && given.MemMiB == 0:
		given.MemMiB = min(shards.Count, held.Entitlement.MemMiB)
	}
	return &given, nil
}

// named is how a user may have typed it.
func named(e request.Entitlement) string {
	text := fmt.Sprintf("%s:%d", request.GRESSlices, e.SliceCount())
	if e.MemMiB > 0 {
		text += fmt.Sprintf(",%s:%d", request.GRESMem, e.MemMiB)
	}
	if e.SMPercent > 0 {
		text += fmt.Sprintf(",%s:%d", request.GRESCores, e.SMPercent)
	}
	return text
}

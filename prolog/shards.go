// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

var errNoShards = fmt.Errorf("%w: it holds vgpu, gpumem or gpucores and no gres/shard, so that Slurm picked no GPU for it: "+
	"it did not pass the site's job-submit script, or that does not know of shards; ask for --gres=shard:N as well, N in MiB", slurm.ErrContradiction)

var errShardsUnsaid = fmt.Errorf("%w: the job has gres/shard, so that Slurm picked its GPU, and here the prolog would pick another", slurm.ErrContradiction)

// notBySlurm refuses shards beside slices where config.yaml does not have shards.
func (p *prolog) notBySlurm(told slurm.Job) error {
	shards, err := told.Shards(p.node)
	if err != nil || shards.Count == 0 {
		return nil //nolint:nilerr // whoever reads the slices says it
	}
	if slice, err := told.Entitlement(p.node); err != nil || slice.IsZero() {
		return nil //nolint:nilerr // as above
	}
	return errShardsUnsaid
}

// halfway is a job that holds a slice here which Slurm counted in the other way, so that it does not know of it, or knows of this one's GPU as another.
// The node drains until such slices are gone.
type halfway struct {
	job     uint32
	bySlurm bool
}

func (h halfway) Error() string {
	if h.bySlurm {
		return fmt.Sprintf("config.yaml says shards: true, and job %d still holds a slice that was counted without", h.job)
	}
	return fmt.Sprintf("config.yaml does not say shards: true, and job %d still holds a slice that was counted by shards", h.job)
}

// bySlurm is what the job was allocated where Slurm picks its GPU: by shards for a slice, as gres/gpu for whole ones.
func (p *prolog) bySlurm(told slurm.Job) (request.Entitlement, error) {
	shards, err := told.Shards(p.node)
	if err != nil {
		return request.Entitlement{}, err
	}
	gpus, anyGPU, err := told.WholeGPUs(p.node)
	if err != nil {
		return request.Entitlement{}, err
	}
	slice, err := told.Entitlement(p.node)
	switch {
	case err != nil && !anyGPU:
		return request.Entitlement{}, err
	case gpus.Count > 0 && shards.Count > 0:
		return request.Entitlement{}, errBoth
	case gpus.Count > 0:
		return p.wholeBySlurm(gpus, slice, told)
	case anyGPU && shards.Count == 0:
		p.noGPUsHere = true
		return request.Entitlement{}, nil
	case shards.Count == 0 && !slice.IsZero():
		return request.Entitlement{}, errNoShards
	case shards.Count == 0:
		return slice, nil
	}
	return p.sliceBySlurm(shards, slice)
}

func (p *prolog) wholeBySlurm(gpus request.GPUs, slice request.Entitlement, told slurm.Job) (request.Entitlement, error) {
	if slice.Slices > 0 && !told.Exclusive {
		return request.Entitlement{}, errBoth
	}
	if len(gpus.Numbers) != gpus.Count {
		return request.Entitlement{}, fmt.Errorf("%w: the controller does not say which %d GPUs the job has", slurm.ErrContradiction, gpus.Count)
	}
	p.whole, p.picked = gpus, gpus.Numbers
	return request.Entitlement{Slices: gpus.Count, SMPercent: 100 * gpus.Count}, nil
}

// sliceBySlurm is a slice of the memory that was counted for it, or else of one MiB for each shard: a share of time can have taken
// more shards than that.
func (p *prolog) sliceBySlurm(shards request.Shards, slice request.Entitlement) (request.Entitlement, error) {
	p.shards, p.picked = shards, shards.Picked()
	if len(p.picked) != 1 || slice.Slices > 1 {
		return request.Entitlement{}, fmt.Errorf("%w: shards of %d GPUs for %d slices: a slice lies on one GPU, and a job has one on each node", slurm.ErrContradiction,
			len(p.picked), max(slice.Slices, 1))
	}
	slice.Slices = 1
	if slice.MemMiB == 0 {
		slice.MemMiB = shards.Count
	}
	slice.MemMiB = min(slice.MemMiB, shards.Count)
	return slice, nil
}

// minorsPicked are the GPUs that Slurm picked, which it numbers in the order of their device files; nil: it picks none here.
func (p *prolog) minorsPicked(inventory device.Inventory) (minors []device.Minor, err error) {
	if p.picked == nil {
		return nil, nil
	}
	gpus := slices.SortedFunc(slices.Values(inventory.GPUs), func(a, b device.GPU) int { return cmp.Compare(a.Minor, b.Minor) })
	for _, n := range p.picked {
		if n >= len(gpus) {
			return nil, fmt.Errorf("GPU %d, which Slurm picked, is not among the %d of this node: vgpu-gres check says what is wrong in gres.conf", n, len(gpus))
		}
		minors = append(minors, gpus[n].Minor)
		// A slice must not come to another GPU than the one that Slurm opens for the job.
		if n < len(p.shards.GPUs) && p.shards.GPUs[n].All != gpus[n].GrantableMiB(p.cfg.MemOvercommit) {
			return nil, fmt.Errorf("GPU %d, which Slurm picked, has %d shards, and nvidia%d has %d MiB: vgpu-gres check says what is wrong in gres.conf",
				n, p.shards.GPUs[n].All, gpus[n].Minor, gpus[n].GrantableMiB(p.cfg.MemOvercommit))
		}
	}
	return minors, nil
}

// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/drained"
	"github.com/slurm-vgpu/slurm-vgpu/internal/grant"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
	"github.com/slurm-vgpu/slurm-vgpu/internal/slurm"
)

var errBoth = fmt.Errorf("%w: whole GPUs (gres/gpu) and slices (gres/vgpu) in one job: ask for one of the two", slurm.ErrContradiction)

// entitled is what the job was allocated here. Where gres/gpu are placed by this program, they are slices of 100 percent.
func (p *prolog) entitled(told slurm.Job) (request.Entitlement, error) {
	if p.cfg.Shards {
		return p.bySlurm(told)
	}
	if err := p.notBySlurm(told); err != nil {
		return request.Entitlement{}, err
	}
	if len(p.cfg.SlurmGPUs) > 0 {
		return p.besideSlurms(told)
	}
	if !p.cfg.WholeGPUs {
		return told.Entitlement(p.node)
	}
	gpus, any, err := told.WholeGPUs(p.node)
	if err != nil || !any {
		if err != nil {
			return request.Entitlement{}, err
		}
		return told.Entitlement(p.node)
	}
	if gpus.Count == 0 {
		p.noGPUsHere = true
		return request.Entitlement{}, nil
	}
	if slices, err := told.Entitlement(p.node); err == nil && slices.Slices > 0 && !told.Exclusive {
		return request.Entitlement{}, errBoth
	}
	p.whole = gpus
	return request.Entitlement{Slices: gpus.Count, SMPercent: 100 * gpus.Count}, nil
}

// besideSlurms is what the job was allocated where Slurm hands out some GPUs by itself.
func (p *prolog) besideSlurms(told slurm.Job) (request.Entitlement, error) {
	entitlement, err := told.Entitlement(p.node)
	if err != nil || entitlement.IsZero() {
		return entitlement, err
	}
	if gpus, _, err := told.WholeGPUs(p.node); err != nil || gpus.Count > 0 {
		return request.Entitlement{}, cmp.Or(err, errBoth)
	}
	return entitlement, nil
}

// knownTypes are those of the node's GPUs: a site may call them otherwise in its gres.conf.
func knownTypes(types request.Filter, inventory device.Inventory) request.Filter {
	types.Only = slices.DeleteFunc(types.Only, func(name string) bool {
		return !slices.ContainsFunc(inventory.GPUs, func(gpu device.GPU) bool { return request.Filter{Only: []string{name}}.Admits(gpu.Type) })
	})
	return types
}

// slurmsOwn are the minors of the GPUs that Slurm gave to the job out of its own, which it numbers in their order.
func (p *prolog) slurmsOwn(told slurm.Job) (minors []int, err error) {
	if len(p.cfg.SlurmGPUs) == 0 {
		return nil, nil
	}
	gpus, _, err := told.WholeGPUs(p.node)
	all := slices.Sorted(slices.Values(p.cfg.SlurmGPUs))
	for _, n := range gpus.Numbers {
		if n >= len(all) {
			return nil, fmt.Errorf("the job has GPU %d of Slurm's own, and slurm_gpus names %d", n, len(all))
		}
		minors = append(minors, all[n])
	}
	return minors, err
}

// withoutSlices is a job that holds no slice. Where GPUs are masked from such jobs, it has those alone that Slurm gave it out of
// its own. Where user namespaces are denied, it has none of those either: mounts without number that it makes there harm others.
func (p *prolog) withoutSlices(ctx context.Context, g grant.Grant, told slurm.Job) error {
	g.Whole, g.MaskMinors = true, []device.Minor{}
	if p.cfg.MasksOthers() {
		if err := p.pluginNamed(); err != nil { // nobody would mask them
			return err
		}
		inventory, err := p.inventory(ctx)
		if err != nil {
			return p.takeOut(ctx, g, drained.GPUsUnknown, err, &told)
		}
		own, err := p.slurmsOwn(told)
		if err != nil {
			return p.refuse(ctx, g, err.Error(), nil)
		}
		for _, gpu := range inventory.GPUs {
			if !slices.Contains(own, int(gpu.Minor)) {
				g.MaskMinors = append(g.MaskMinors, gpu.Minor)
			}
		}
	}
	if len(g.MaskMinors) == 0 && !(g.IsStrict() && g.DenyUserNamespaces) {
		return p.withoutVGPU(ctx)
	}
	if err := p.prepareIsolation(); err != nil {
		return p.refuse(ctx, g, "the node cannot isolate jobs: "+err.Error(), nil)
	}
	if err := p.releaseOthers(ctx); err != nil {
		return err
	}
	tx, err := p.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.End()
	if err := p.makeFolder(g); err != nil {
		return err
	}
	p.log.Debug("the job has no slice, and is held", "masked_minors", g.MaskMinors, "user_namespaces_denied", g.DenyUserNamespaces)
	return tx.Commit()
}

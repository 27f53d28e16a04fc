// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
)

var errNotOff = errors.New("the driver does not keep channels off")

// triesToHold is how many calls in a row may fail before a GPU is left to the library.
const triesToHold = 3

// notKept counts calls that should have kept somebody at its cap. Nothing else would hold a cap then, so the GPU becomes the library's.
func (k *keeper) notKept(g *gpu, why error) {
	if !slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.limit.off }) {
		return
	}
	if g.failed++; g.failed >= triesToHold {
		k.refuse(g, why)
	}
}

// noCapsOf is for a job none of whose slices can be held.
func (k *keeper) noCapsOf(job uint32, why error) {
	for _, g := range k.gpus {
		if slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.Job == job && t.limit.hold != nil }) {
			k.refuse(g, why)
		}
	}
}

// WaitForState is how long to wait for the state's lock.
const WaitForState = 10 * time.Second

// Refuse leaves a GPU to the library.
func (h *Here) Refuse(gpu device.UUID) error {
	ctx, cancel := context.WithTimeout(context.Background(), WaitForState)
	defer cancel()
	return h.Store.Refuse(ctx, gpu)
}

// refuse leaves a GPU to the library, beside the loop: the state's lock may be held.
func (k *keeper) refuse(g *gpu, why error) {
	if g.refused {
		return
	}
	g.refused = true
	k.Log.Error("caps cannot be kept on a GPU from outside: the library keeps the shares of its slices, until vgpud is begun anew", "device", g.UUID, "reason", why)
	go func(gpu GPU) {
		if err := k.Refuse(gpu.UUID); err != nil {
			k.Log.Error("nobody keeps the caps of a GPU's slices: it cannot be left to the library", "device", gpu.UUID, "reason", err)
		}
	}(g.GPU)
}

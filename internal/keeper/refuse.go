// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"errors"
	"slices"

	"github.com/slurm-vgpu/slurm-vgpu/internal/channels"
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/ledger"
	"github.com/slurm-vgpu/slurm-vgpu/internal/share"
)

var errNotOff = errors.New("the driver does not keep channels off")

// notKept counts failed calls that should have kept a slice at its cap. After some the GPU is left to the library, which then keeps the caps.
func (k *keeper) notKept(g *gpu, why error) {
	if !slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.capState.off }) {
		return
	}
	if g.refusal.failed++; g.refusal.failed >= triesToHold {
		k.refuse(g, why)
	}
}

// noCapsOf is for a job none of whose slices can be held.
func (k *keeper) noCapsOf(job uint32, why error) {
	for _, g := range k.gpus {
		if slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.Job == job && t.capState.hold != nil }) {
			k.refuse(g, why)
		}
		g.refusal.tried = g.refusal.tried || g.Refused
	}
}

// Refuse leaves a GPU to the library.
func (h *Here) Refuse(gpu device.UUID) error {
	ctx, cancel := context.WithTimeout(context.Background(), WaitForState)
	defer cancel()
	return h.Store.Refuse(ctx, gpu)
}

// Accept takes it back.
func (h *Here) Accept(gpu device.UUID) error {
	ctx, cancel := context.WithTimeout(context.Background(), WaitForState)
	defer cancel()
	return h.Store.Accept(ctx, gpu)
}

// refuse leaves a GPU to the library, beside the loop: the state's lock may be held.
func (k *keeper) refuse(g *gpu, why error) {
	if g.refusal.asked || g.Refused {
		return
	}
	g.refusal.asked = true
	k.Log.Error(
		"caps cannot be kept on a GPU from outside: the library holds those of its slices until the driver does it again, which is tried when vgpud begins",
		"device", g.UUID, "reason", why)
	go func(gpu GPU) {
		if err := k.Refuse(gpu.UUID); err != nil {
			k.Log.Error("the caps of a GPU's slices are not kept: the GPU cannot be left to the library", "device", gpu.UUID, "reason", err)
		}
	}(g.GPU)
}

// tryAgain makes one harmless call on a GPU that is left to the library: it lets channels run that run already.
func (k *keeper) tryAgain(g *gpu, named ledger.Group) {
	if g.refusal.tried || len(named.Channels) == 0 {
		return
	}
	g.refusal.tried = true
	var gone []channels.Channel
	err := k.openGPU(g)
	if err == nil {
		gone, err = g.device.Disable(false, []channels.Channel{{Client: named.Client, Handle: named.Channels[0]}})
	}
	if err == nil && len(gone) > 0 { // the answer says nothing
		g.refusal.tried = false
		return
	}
	if err != nil {
		k.once("a GPU is left to the library: the driver refuses vgpud its calls as before", err)
		k.closeGPU(g)
		return
	}
	k.Log.Info("the driver does what vgpud asks of it: a GPU's slices are kept from outside again", "device", g.UUID)
	go func(gpu GPU) {
		if err := k.Accept(gpu.UUID); err != nil {
			k.Log.Error("a GPU stays the library's", "device", gpu.UUID, "reason", err)
		}
	}(g.GPU)
}

// mayAsk says whether there is a GPU on which the driver can confirm the groups of a job's processes.
func (k *keeper) mayAsk(job uint32) bool {
	for _, g := range k.gpus {
		if !(g.Refused && g.refusal.tried) && slices.ContainsFunc(g.tenants, func(t *tenant) bool { return t.Job == job }) {
			return true
		}
	}
	return false
}

// seeNamed says, by its page, that a process of a job has groups on a GPU. For a GPU that is left to the library there is no other source.
func (k *keeper) seeNamed(job uint32) {
	for _, g := range k.gpus {
		for _, t := range g.tenants {
			t.named = t.named || g.Refused && t.Job == job
		}
	}
}

func (k *keeper) unseeNamed() {
	for _, g := range k.gpus {
		for _, t := range g.tenants {
			t.named = false
		}
	}
}

// seeHoldersOfRefused takes NVML's list of processes with memory of a GPU that is left to the library.
func (g *gpu) seeHoldersOfRefused(pids map[int]uint32) {
	g.refusal.jobs, g.untracked = pids, false
	for _, t := range g.tenants {
		t.named = false
	}
	for _, job := range pids {
		at := slices.IndexFunc(g.tenants, func(t *tenant) bool { return t.Job == job })
		if at < 0 {
			g.untracked = true
			continue
		}
		g.tenants[at].named = true
	}
}

// seeOnly counts the time for which a GPU that is left to the library was at work, as far as the tenant is known. Of several tenants it is known only where
// NVML names one process.
func (g *gpu) seeOnly(active float64, pid int) float64 {
	g.refusal.only = g.refusal.jobs[pid]
	if g.refusal.only == 0 && (g.counting() > 1 || g.untracked) && active > idle {
		return -1
	}
	return active
}

// tellPercents writes each tenant's use.
func (k *keeper) tellPercents(g *gpu) {
	for _, t := range g.tenants {
		known := share.Tenant{}
		g.window.Fill(t.key, &known)
		t.percent, t.slice = uint32(min(1, known.Used)*100*100), 0 // no call sets it
	}
	g.window.Reset()
	g.planned = k.now
}

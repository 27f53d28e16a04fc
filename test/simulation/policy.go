// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/slurm-vgpu/slurm-vgpu/internal/device"
	"github.com/slurm-vgpu/slurm-vgpu/internal/request"
)

// policy is who knows what, and which GPU is taken.
type policy struct {
	name string
	// pool: all GPUs are one large one. Nothing is fragmented there.
	pool bool
	// byGPU: slurmctld knows each GPU (shards) and takes the first that fits; else it counts by node, and the prolog may find no room.
	byGPU       bool
	leastLoaded bool // … or the one of which least is given out (LL_SHARED_GRES)
	rule        request.Place
	// waits: who finds no room tries other nodes, and is told of room (decision 033). Else it comes back after cred_expire, and
	// fails after max_requeues.
	waits bool

	// emptiest: slurmctld takes the node on which least is used (LLN), instead of the first one.
	emptiest bool

	inv device.Inventory
}

var policies = []policy{
	{name: "one large GPU", pool: true},
	{name: "shards, first GPU that fits (installed)", byGPU: true},
	{name: "shards, least loaded GPU", byGPU: true, leastLoaded: true},
	{name: "counts, pack, waits", rule: request.PlacePack, waits: true},
	{name: "counts, spread, waits", rule: request.PlaceSpread, waits: true},
	{name: "counts, pack, comes back", rule: request.PlacePack},
	{name: "counts, spread, comes back", rule: request.PlaceSpread},
	{name: "counts, pack, waits, LLN", rule: request.PlacePack, waits: true, emptiest: true},
}

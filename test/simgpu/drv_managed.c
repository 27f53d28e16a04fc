/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Managed memory: the host's until a device uses it. Small blocks share granules like plain ones,
 * larger ones are of the size that was asked for, to 64 KiB. */
#include "drv.h"

#include <sys/mman.h>

#define SMALL_BYTES SIM_MIB /* up to this, allocations of a context share granules */
#define SMALL_ALIGN 512

static bool is_small(const struct sim_block *block)
{
	return block->span <= SMALL_BYTES;
}

static void give_place(CUcontext ctx, CUdeviceptr base, uint64_t span)
{
	if (span <= SMALL_BYTES)
		drv_small_give(ctx, base, span);
	else
		munmap((void *)(uintptr_t)base, span);
}

/* With the lock held. */
static CUresult allocate(CUcontext ctx, size_t bytes, CUdeviceptr *out)
{
	bool small = bytes <= SMALL_BYTES;
	bool half = bytes % SIM_GRANULE_BYTES > SIM_GRANULE_BYTES / 2; /* all of the last granule then */
	uint64_t span = sim_round_up(bytes, small  ? SMALL_ALIGN
					    : half ? SIM_GRANULE_BYTES
						   : SIM_MANAGED_BYTES);
	struct sim_block *block;
	CUdeviceptr base;
	void *at;

	if (small) {
		base = drv_small_take(ctx, span, SIM_PLACE_MANAGED);
	} else {
		at = drv_map(span, SIM_MANAGED_BYTES);
		base = at != MAP_FAILED ? (uintptr_t)at : 0;
	}
	if (base == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block = drv_block_new(SIM_MANAGED, base, bytes, ctx);
	if (block == NULL) {
		give_place(ctx, base, span);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	block->span = span;
	block->ordinal = ctx->ordinal;
	block->device = ctx->device;
	*out = base;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (out == NULL || bytes == 0 || flags < 1 || flags > 4 || flags == 3)
		return CUDA_ERROR_INVALID_VALUE;
	if (bytes > UINT64_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv_lock();
	return drv_unlock(allocate(ctx, bytes, out));
}

void drv_managed_move_in(struct sim_block *block, int device)
{
	if (block->kind != SIM_MANAGED || block->resident)
		return;
	if (is_small(block))
		block->resident = drv_small_move_in(block->ctx, block->base, &device);
	else
		block->resident = sim_managed_take(device, block->span) == 0;
	if (block->resident)
		block->device = device;
}

void drv_managed_move_out(struct sim_block *block)
{
	if (!block->resident)
		return;
	block->resident = false;
	if (is_small(block))
		drv_small_move_out(block->ctx, block->base);
	else
		sim_managed_give(block->device, block->span);
}

void drv_managed_release(struct sim_block *block)
{
	drv_managed_move_out(block);
	give_place(block->ctx, block->base, block->span);
}

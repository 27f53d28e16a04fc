/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds ALLOC, ALLOC_MANAGED, ALLOC_PITCH, ALLOC_ASYNC and FREE: memory by pointer. */
#ifndef VGPU_CUDA_MEMORY_H
#define VGPU_CUDA_MEMORY_H

#include "account/account.h"
#include "base/arithmetic.h"
#include "base/table.h"
#include "context/overhead.h"
#include "cuda/wrap.h"
#include "memory/blocks.h"
#include "memory/charge.h"
#include "pools/async.h"
#include "pools/table.h"
#include "tuning.h"

static CUcontext current_context(void)
{
	vgpu_fn_cuCtxGetCurrent *get = VGPU_REAL(cuCtxGetCurrent);
	CUcontext context = NULL;

	return get != NULL && get(&context) == CUDA_SUCCESS ? context : NULL;
}

static CUresult discard(CUdeviceptr pointer)
{
	vgpu_fn_cuMemFree_v2 *real_free = VGPU_REAL(cuMemFree_v2);

	if (real_free != NULL)
		real_free(pointer);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult put_block(struct vgpu_charge *charge, CUdeviceptr pointer, uint32_t kind)
{
	if (charge->process != NULL && charge->device >= 0)
		vgpu_blocks_put(charge->process, pointer, (uint32_t)charge->device, charge->bytes,
				current_context(), kind);
	return CUDA_SUCCESS;
}

/* The same of memory by address, of which small blocks share granules. */
static CUresult keep_block(struct vgpu_charge *charge, CUdeviceptr pointer, uint64_t bytes, bool managed)
{
	if (bytes > VGPU_SHARED_UP_TO_BYTES)
		return put_block(charge, pointer, managed ? VGPU_BLOCK_MANAGED : VGPU_BLOCK_PLAIN);
	if (charge->process != NULL && charge->device >= 0) {
		vgpu_charge_small(charge, pointer, bytes, managed);
		vgpu_blocks_put(charge->process, pointer, (uint32_t)charge->device, bytes, current_context(),
				VGPU_BLOCK_SMALL);
	}
	return CUDA_SUCCESS;
}

/* Takes a charge for memory of the current context's device; what was loaded before comes first. */
static CUresult charge_after_overhead(struct vgpu_charge *charge, uint64_t bytes)
{
	vgpu_overhead_catch_up(attached());
	return vgpu_charge_current(charge, bytes);
}

static CUresult async_after_overhead(struct vgpu_async *async, uint64_t bytes, CUmemoryPool pool,
				     CUstream stream)
{
	vgpu_overhead_catch_up(attached());
	return vgpu_async_begin(async, bytes, pool, stream);
}

/* For a function that makes something: charged beforehand, or refused. */
#define CHARGE_OR_RETURN(taken)                                                                 \
	struct vgpu_charge charge;                                                              \
	CUresult refused = taken;                                                               \
	if (refused != CUDA_SUCCESS)                                                            \
		return refused

static CUresult not_made(struct vgpu_charge *charge, CUresult result)
{
	vgpu_charge_cancel(charge);
	return result;
}

#define WRAP_ALLOC(symbol, params, args, out, bytes)                                            \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		REAL_OR_RETURN(symbol);                                                         \
		CHARGE_OR_RETURN(charge_after_overhead(&charge, vgpu_charge_granules(bytes)));  \
		CUresult result = real args;                                                    \
                                                                                                \
		return result == CUDA_SUCCESS ? keep_block(&charge, *(out), bytes, false) : not_made(&charge, result); \
	}

#define WRAP_ALLOC_MANAGED(symbol, params, args, out, bytes)                                    \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		REAL_OR_RETURN(symbol);                                                         \
		CHARGE_OR_RETURN(charge_after_overhead(&charge, vgpu_charge_managed(bytes)));   \
		CUresult result = real args;                                                    \
                                                                                                \
		return result == CUDA_SUCCESS ? keep_block(&charge, *(out), bytes, true) : not_made(&charge, result); \
	}

/* The per-thread default stream of the functions that mean it by NULL. */
#define PER_THREAD(stream) ((stream) != NULL ? (stream) : CU_STREAM_PER_THREAD)

#define WRAP_ALLOC_ASYNC(symbol, params, args, out, bytes, pool, stream)                        \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		REAL_OR_RETURN(symbol);                                                         \
		struct vgpu_async async;                                                        \
		CUresult refused = async_after_overhead(&async, bytes, pool, stream);           \
		CUresult result = refused == CUDA_SUCCESS ? real args : refused;                \
		if (refused != CUDA_SUCCESS)                                                    \
			return refused;                                                         \
		return vgpu_async_end(&async, result, result == CUDA_SUCCESS ? *(out) : 0, stream); \
	}

static uint64_t pitched(uint64_t width, uint64_t height)
{
	return vgpu_times(vgpu_round_up(width, VGPU_PITCH_BYTES), height);
}

/* With the pitch that the driver chose. */
static CUresult keep_pitched(struct vgpu_charge *charge, CUdeviceptr pointer, uint64_t bytes)
{
	if (vgpu_charge_adjust(charge, vgpu_charge_granules(bytes)) == CUDA_SUCCESS)
		return keep_block(charge, pointer, bytes, false);
	return not_made(charge, discard(pointer));
}

#define WRAP_ALLOC_PITCH(symbol, params, args, out, pitch, width, height)                       \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		REAL_OR_RETURN(symbol);                                                         \
		CHARGE_OR_RETURN(charge_after_overhead(&charge, vgpu_charge_granules(pitched(width, height)))); \
		CUresult result = real args;                                                    \
                                                                                                \
		return result == CUDA_SUCCESS ? keep_pitched(&charge, *(out), vgpu_times(*(pitch), height)) : not_made(&charge, result); \
	}

static CUresult freed(struct vgpu_process *p, const struct vgpu_entry *block, CUresult result)
{
	if (result != CUDA_SUCCESS)
		vgpu_blocks_put_back(p, block);
	else if (block->count == VGPU_BLOCK_OF_POOL)
		vgpu_pools_block_freed(p, block);
	else
		vgpu_blocks_ended(p, block);
	return result;
}

#define WRAP_FREE(symbol, params, args, pointer)                                                \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct vgpu_entry block;                                                        \
		bool ours = p != NULL && vgpu_blocks_take(p, pointer, &block);                  \
		CUresult result = real args;                                                    \
                                                                                                \
		return ours ? freed(p, &block, result) : result;                                \
	}

#endif

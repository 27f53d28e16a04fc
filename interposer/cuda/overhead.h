/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds IMPORT and SET_LIMIT: memory of other interfaces, and the stacks and heaps of kernels. */
#ifndef VGPU_CUDA_OVERHEAD_H
#define VGPU_CUDA_OVERHEAD_H

#include "context/context.h"
#include "context/overhead.h"
#include "cuda/memory.h"
#include "tuning.h"

/* Memory that another interface of this process has made, Vulkan for one, is found in what the driver
 * reports. What does not fit is refused before the call, which takes the caller's descriptor. */
static CUresult imported(struct vgpu_process *p, CUresult result)
{
	if (result == CUDA_SUCCESS && p != NULL)
		vgpu_overhead_loaded(p, false);
	return result;
}

#define WRAP_IMPORT(symbol, params, args)                                                       \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
                                                                                                \
		if (p != NULL && !vgpu_overhead_look(p, false))                                 \
			return CUDA_ERROR_OUT_OF_MEMORY;                                        \
		return imported(p, real args);                                                  \
	}

/* The part of a limit's value that is memory which a launch makes. The stacks are made at once. */
static uint64_t made_later(int limit, size_t value)
{
	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > VGPU_HEAP_DEFAULT_BYTES)
		return value > UINT64_MAX - VGPU_HEAP_BESIDES_BYTES ? value : value + VGPU_HEAP_BESIDES_BYTES;
	return limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE ? value : 0;
}

/* A limit's value before, and by how much more or less memory will be made after a change. */
struct limit_change {
	CUcontext context;
	size_t before;
	uint64_t more, less;
};

static bool limit_known(int limit, size_t value, struct limit_change *change)
{
	vgpu_fn_cuCtxGetLimit *get_limit = VGPU_REAL(cuCtxGetLimit);
	uint64_t now, then;

	change->context = current_context();
	if (get_limit == NULL || get_limit(&change->before, limit) != CUDA_SUCCESS)
		return false;
	now = made_later(limit, change->before);
	then = made_later(limit, value);
	change->more = then > now ? then - now : 0;
	change->less = value < change->before ? now - then : 0;
	return true;
}

static CUresult limit_set(struct vgpu_process *p, const struct limit_change *change, int limit,
			  CUresult result)
{
	if (result != CUDA_SUCCESS && change->more > 0)
		vgpu_context_unpromise(p, change->context, change->more);
	else if (result == CUDA_SUCCESS && change->less > 0)
		vgpu_context_unpromise(p, change->context, change->less);
	else if (result == CUDA_SUCCESS && change->more == 0 && !vgpu_overhead_settle_current(p)) {
		VGPU_REAL(cuCtxSetLimit)(limit, change->before);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	return result;
}

#define WRAP_SET_LIMIT(symbol, params, args, limit, value)                                      \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct limit_change change;                                                     \
		if (p == NULL || !limit_known(limit, value, &change))                           \
			return real args;                                                       \
		if (change.more > 0 && !vgpu_context_promise(p, change.context, change.more))   \
			return CUDA_ERROR_OUT_OF_MEMORY;                                        \
		return limit_set(p, &change, limit, real args);                                 \
	}

#endif

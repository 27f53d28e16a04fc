/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds LOAD, UNLOAD, LOAD_LAZILY and SET_LIMIT: what makes a context grow and shrink. */
#ifndef VGPU_WRAP_GROWTH_H
#define VGPU_WRAP_GROWTH_H

#include "context.h"
#include "growth.h"
#include "wrap_memory.h"

static bool loaded(struct vgpu_process *p, bool lightly)
{
	bool fits = vgpu_growth_look(p, lightly);

	/* The driver may load the rest at a launch. */
	__atomic_store_n(&p->growth_pending, 1, __ATOMIC_RELAXED);
	return fits;
}

#define WRAP_LOAD(symbol, params, args, out, undo)                                              \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		REAL_OR_RETURN(symbol);                                                         \
		struct vgpu_process *p = attached();                                            \
		vgpu_fn_##undo *take_back = VGPU_REAL(undo);                                    \
		CUresult result = real args;                                                    \
                                                                                                \
		if (result != CUDA_SUCCESS || p == NULL || loaded(p, false))                    \
			return result;                                                          \
		if (take_back != NULL)                                                          \
			take_back(*(out));                                                      \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                \
	}

#define WRAP_UNLOAD(symbol, params, args)                                \
	WRAP(symbol, params)                                             \
	{                                                                \
		REAL_OR_RETURN(symbol);                                  \
		struct vgpu_process *p = attached();                     \
		CUresult result = real args;                             \
                                                                         \
		if (result == CUDA_SUCCESS && p != NULL)                 \
			vgpu_growth_look(p, false);                      \
		return result;                                           \
	}

/* There is nothing to undo: the driver would say the same if it could not load now. */
#define WRAP_LOAD_LAZILY(symbol, params, args)                                           \
	WRAP(symbol, params)                                                             \
	{                                                                                \
		REAL_OR_RETURN(symbol);                                                  \
		struct vgpu_process *p = attached();                                     \
		CUresult result = real args;                                             \
                                                                                         \
		if (result == CUDA_SUCCESS && p != NULL && !loaded(p, true))             \
			result = CUDA_ERROR_OUT_OF_MEMORY;                               \
		return result;                                                           \
	}

/* What of a limit's value is memory that a launch makes. The stacks are made at once. */
static uint64_t made_later(int limit, size_t value)
{
	return limit == CU_LIMIT_PRINTF_FIFO_SIZE || limit == CU_LIMIT_MALLOC_HEAP_SIZE ? value : 0;
}

#define WRAP_SET_LIMIT(symbol, params, args, limit, value)                                        \
	WRAP(symbol, params)                                                                      \
	{                                                                                         \
		REAL_OR_RETURN(symbol);                                                           \
		struct vgpu_process *p = attached();                                              \
		CUcontext context = current_context();                                            \
		vgpu_fn_cuCtxGetLimit *get_limit = VGPU_REAL(cuCtxGetLimit);                      \
		size_t before;                                                                    \
		uint64_t more, less;                                                              \
		CUresult result;                                                                  \
                                                                                                  \
		if (p == NULL || get_limit == NULL || get_limit(&before, limit) != CUDA_SUCCESS)  \
			return real args;                                                         \
		more = made_later(limit, (value) > before ? (value) - before : 0);                \
		less = made_later(limit, (value) < before ? before - (value) : 0);                \
		if (more > 0 && !vgpu_context_promise(p, context, more))                          \
			return CUDA_ERROR_OUT_OF_MEMORY;                                          \
		result = real args;                                                               \
		if (result != CUDA_SUCCESS && more > 0)                                           \
			vgpu_context_unpromise(p, context, more);                                 \
		else if (result == CUDA_SUCCESS && less > 0)                                      \
			vgpu_context_unpromise(p, context, less);                                 \
		else if (result == CUDA_SUCCESS && more == 0 && !vgpu_growth_settle_current(p)) { \
			real(limit, before);                                                      \
			result = CUDA_ERROR_OUT_OF_MEMORY;                                        \
		}                                                                                 \
		return result;                                                                    \
	}

#endif

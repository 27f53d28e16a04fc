/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds IMPORT and SET_LIMIT: memory of other interfaces, and the stacks and heaps of kernels. */
#ifndef VGPU_CUDA_OVERHEAD_H
#define VGPU_CUDA_OVERHEAD_H

#include "context/context.h"
#include "context/overhead.h"
#include "cuda/memory.h"

/* Memory that another interface of this process has made, Vulkan for one, is found in what the driver
 * reports. What does not fit is refused before the call, which takes the caller's descriptor. */
#define WRAP_IMPORT(symbol, params, args)                           \
	WRAP(symbol, params)                                        \
	{                                                           \
		REAL_OR_RETURN(symbol);                             \
		struct vgpu_process *p = attached();                \
		CUresult result;                                    \
                                                                    \
		if (p != NULL && !vgpu_overhead_look(p, false))       \
			return CUDA_ERROR_OUT_OF_MEMORY;            \
		result = real args;                                 \
		if (result == CUDA_SUCCESS && p != NULL)            \
			vgpu_overhead_loaded(p, false);               \
		return result;                                      \
	}

/* The heap that every context may make, and what the driver takes besides for one that was asked
 * for: 150 MiB more than what the heap was raised by, measured on an H200, driver 580. */
#define DEFAULT_HEAP_BYTES (8ull << 20)
#define HEAP_BESIDES_BYTES (150ull << 20)

/* What of a limit's value is memory that a launch makes. The stacks are made at once. */
static uint64_t made_later(int limit, size_t value)
{
	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > DEFAULT_HEAP_BYTES)
		return value > UINT64_MAX - HEAP_BESIDES_BYTES ? value : value + HEAP_BESIDES_BYTES;
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
		more = made_later(limit, value);                                                  \
		less = made_later(limit, before);                                                 \
		more -= more < less ? more : less;                                                \
		less = (value) < before ? less - made_later(limit, value) : 0;                    \
		if (more > 0 && !vgpu_context_promise(p, context, more))                          \
			return CUDA_ERROR_OUT_OF_MEMORY;                                          \
		result = real args;                                                               \
		if (result != CUDA_SUCCESS && more > 0)                                           \
			vgpu_context_unpromise(p, context, more);                                 \
		else if (result == CUDA_SUCCESS && less > 0)                                      \
			vgpu_context_unpromise(p, context, less);                                 \
		else if (result == CUDA_SUCCESS && more == 0 && !vgpu_overhead_settle_current(p)) { \
			real(limit, before);                                                      \
			result = CUDA_ERROR_OUT_OF_MEMORY;                                        \
		}                                                                                 \
		return result;                                                                    \
	}

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds CTX_* and PRIMARY_*: contexts. */
#ifndef VGPU_WRAP_CONTEXT_H
#define VGPU_WRAP_CONTEXT_H

#include "context.h"
#include "wrap.h"

#define WRAP_CTX_CREATE(symbol, params, args, context, ordinal)                                      \
	WRAP(symbol, params)                                                                         \
	{                                                                                            \
		REAL_OR_RETURN(symbol);                                                              \
		struct vgpu_process *p = attached();                                                 \
		vgpu_fn_cuCtxDestroy_v2 *destroy = VGPU_REAL(cuCtxDestroy_v2);                       \
		CUresult result = real args;                                                         \
                                                                                                     \
		if (result != CUDA_SUCCESS || p == NULL || vgpu_context_made(p, *(context), ordinal, false)) \
			return result;                                                               \
		if (destroy != NULL)                                                                 \
			destroy(*(context));                                                         \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                     \
	}

#define WRAP_CTX_DESTROY(symbol, params, args, context)                 \
	WRAP(symbol, params)                                            \
	{                                                               \
		REAL_OR_RETURN(symbol);                                 \
		struct vgpu_process *p = attached();                    \
		CUresult result = real args;                            \
                                                                        \
		if (result == CUDA_SUCCESS && p != NULL)                \
			vgpu_context_gone(p, context);                  \
		return result;                                          \
	}

#define WRAP_PRIMARY_RETAIN(symbol, params, args, context, ordinal)                                 \
	WRAP(symbol, params)                                                                        \
	{                                                                                           \
		REAL_OR_RETURN(symbol);                                                             \
		struct vgpu_process *p = attached();                                                \
		vgpu_fn_cuDevicePrimaryCtxRelease_v2 *release = VGPU_REAL(cuDevicePrimaryCtxRelease_v2); \
		CUresult result = real args;                                                        \
                                                                                                    \
		if (result != CUDA_SUCCESS || p == NULL || vgpu_context_made(p, *(context), ordinal, true)) \
			return result;                                                              \
		if (release != NULL)                                                                \
			release(ordinal);                                                           \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                    \
	}

#define WRAP_PRIMARY_RELEASE(symbol, params, args, ordinal)              \
	WRAP(symbol, params)                                             \
	{                                                                \
		REAL_OR_RETURN(symbol);                                  \
		struct vgpu_process *p = attached();                     \
		CUresult result = real args;                             \
                                                                         \
		if (result == CUDA_SUCCESS && p != NULL)                 \
			vgpu_context_primary_released(p, ordinal);       \
		return result;                                           \
	}

#endif

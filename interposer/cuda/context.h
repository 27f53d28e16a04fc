/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds CTX_MAKE, CTX_DESTROY and GREEN_DESTROY: how contexts begin and end. */
#ifndef VGPU_CUDA_CONTEXT_H
#define VGPU_CUDA_CONTEXT_H

#include "context/context.h"
#include "cuda/wrap.h"
#include "driver/contexts.h"

/* Charged before it is made, put right afterwards, and undone if that does not fit. */
#define WRAP_CTX_MAKE(symbol, params, args, context, ordinal, primary, ...)                                \
	WRAP(symbol, params)                                                                               \
	{                                                                                                  \
		REAL_OR_RETURN(symbol);                                                                    \
		struct vgpu_process *p = attached();                                                       \
		struct vgpu_coming coming;                                                                 \
		CUresult result;                                                                           \
                                                                                                           \
		if (!vgpu_context_begin(p, ordinal, primary, &coming))                                     \
			return CUDA_ERROR_OUT_OF_MEMORY;                                                   \
		result = real args;                                                                        \
		if (result != CUDA_SUCCESS)                                                                \
			vgpu_context_failed(p, &coming);                                                   \
		if (result != CUDA_SUCCESS || p == NULL || vgpu_context_made(p, context, ordinal, primary, &coming)) \
			return result;                                                                     \
		UNDO(__VA_ARGS__);                                                                         \
		vgpu_context_undone(p, ordinal, &coming);                                                  \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                           \
	}

#define WRAP_CTX_DESTROY(symbol, params, args, context)                                          \
	WRAP(symbol, params)                                                                     \
	{                                                                                        \
		REAL_OR_RETURN(symbol);                                                          \
		struct vgpu_process *p = attached();                                             \
		struct vgpu_context noted;                                                       \
		bool known = p != NULL && vgpu_context_leaves(p, context, &noted);               \
		CUresult result = real args;                                                     \
                                                                                                 \
		if (p != NULL && result == CUDA_SUCCESS)                                         \
			vgpu_context_left(p, context, known ? &noted : NULL);                    \
		else if (p != NULL)                                                              \
			vgpu_context_stays(p, context, known ? &noted : NULL);                   \
		return result;                                                                   \
	}

#define WRAP_GREEN_DESTROY(symbol, params, args, green)                                           \
	WRAP(symbol, params)                                                                      \
	{                                                                                         \
		REAL_OR_RETURN(symbol);                                                           \
		struct vgpu_process *p = attached();                                              \
		CUdevice ordinal;                                                                 \
		bool known = p != NULL && vgpu_contexts_ordinal(p, (CUcontext)(green), &ordinal);  \
		CUresult result = real args;                                                      \
                                                                                                  \
		if (known && result == CUDA_SUCCESS)                                              \
			vgpu_context_green_gone(p, (CUcontext)(green), ordinal);                  \
		return result;                                                                    \
	}

#endif

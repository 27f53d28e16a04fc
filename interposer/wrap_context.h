/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds CTX_DESTROY and GREEN_DESTROY: the ends of contexts. */
#ifndef VGPU_WRAP_CONTEXT_H
#define VGPU_WRAP_CONTEXT_H

#include "context.h"
#include "wrap.h"

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
		bool known = p != NULL && vgpu_context_ordinal(p, (CUcontext)(green), &ordinal);  \
		CUresult result = real args;                                                      \
                                                                                                  \
		if (known && result == CUDA_SUCCESS)                                              \
			vgpu_context_green_gone(p, (CUcontext)(green), ordinal);                  \
		return result;                                                                    \
	}

#endif

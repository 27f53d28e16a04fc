/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds CTX_*, PRIMARY_* and GREEN_*: contexts. */
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

/* Ends the context when it has been attached to no more often than that. */
#define WRAP_CTX_DETACH(symbol, params, args, context)                                   \
	WRAP(symbol, params)                                                             \
	{                                                                                \
		REAL_OR_RETURN(symbol);                                                  \
		struct vgpu_process *p = attached();                                     \
		vgpu_fn_cuCtxGetApiVersion *ask = VGPU_REAL(cuCtxGetApiVersion);         \
		CUresult result = real args;                                             \
		unsigned int version;                                                    \
                                                                                         \
		if (result == CUDA_SUCCESS && p != NULL && (context) != NULL && ask != NULL && \
		    ask(context, &version) != CUDA_SUCCESS)                              \
			vgpu_context_gone(p, context);                                   \
		return result;                                                           \
	}

/* A green context holds the primary one, in which its memory lies. It is noted like a context of
 * that device, and so is the context that is made of it, which may have the same handle. */
#define WRAP_GREEN_CREATE(symbol, params, args, green, ordinal)                                   \
	WRAP(symbol, params)                                                                      \
	{                                                                                         \
		REAL_OR_RETURN(symbol);                                                           \
		struct vgpu_process *p = attached();                                              \
		vgpu_fn_cuGreenCtxDestroy *destroy = VGPU_REAL(cuGreenCtxDestroy);                \
		CUresult result = real args;                                                      \
                                                                                                  \
		if (result != CUDA_SUCCESS || p == NULL ||                                        \
		    vgpu_context_made(p, (CUcontext)*(green), ordinal, true))                     \
			return result;                                                            \
		if (destroy != NULL)                                                              \
			destroy(*(green));                                                        \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                  \
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

#define WRAP_GREEN_CONTEXT(symbol, params, args, context, green)                                  \
	WRAP(symbol, params)                                                                      \
	{                                                                                         \
		REAL_OR_RETURN(symbol);                                                           \
		struct vgpu_process *p = attached();                                              \
		CUresult result = real args;                                                      \
		CUdevice ordinal;                                                                 \
                                                                                                  \
		if (result == CUDA_SUCCESS && p != NULL &&                                        \
		    vgpu_context_ordinal(p, (CUcontext)(green), &ordinal) &&                      \
		    !vgpu_context_made(p, *(context), ordinal, true))                             \
			result = CUDA_ERROR_OUT_OF_MEMORY;                                        \
		return result;                                                                    \
	}

#endif

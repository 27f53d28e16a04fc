/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds CTX_MAKE, CTX_DESTROY and GREEN_DESTROY: how contexts begin and end. */
#ifndef VGPU_CUDA_CONTEXT_H
#define VGPU_CUDA_CONTEXT_H

#include "context/context.h"
#include "cuda/wrap.h"
#include "driver/contexts.h"
#include "gate/gate.h"

/* Charges a context before the driver makes it. */
#define COMING_OR_RETURN(ordinal, primary)                                                      \
	struct vgpu_coming coming;                                                              \
	if (!vgpu_context_begin(p, ordinal, primary, &coming))                                  \
		return CUDA_ERROR_OUT_OF_MEMORY

static CUresult context_failed(struct vgpu_process *p, const struct vgpu_coming *coming, CUresult result)
{
	vgpu_context_failed(p, coming);
	return result;
}

static CUresult context_undone(struct vgpu_process *p, CUdevice ordinal, const struct vgpu_coming *coming)
{
	vgpu_context_undone(p, ordinal, coming);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Charged before it is made, put right afterwards, and undone if that does not fit. */
#define WRAP_CTX_MAKE(symbol, params, args, context, ordinal, primary, ...)                     \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		COMING_OR_RETURN(ordinal, primary);                                             \
		CUresult result = real args;                                                    \
		if (result != CUDA_SUCCESS || p == NULL || vgpu_context_made(p, context, ordinal, primary, &coming)) \
			return result == CUDA_SUCCESS ? result : context_failed(p, &coming, result); \
		UNDO(__VA_ARGS__);                                                              \
		return context_undone(p, ordinal, &coming);                                     \
	}

static CUresult context_left(struct vgpu_process *p, CUcontext context, const struct vgpu_context *noted,
			     CUresult result)
{
	if (p != NULL && result == CUDA_SUCCESS)
		vgpu_context_left(p, context, noted);
	else if (p != NULL)
		vgpu_context_stays(p, context, noted);
	return result;
}

static bool context_leaves(struct vgpu_process *p, CUcontext context, struct vgpu_context *noted)
{
	if (p == NULL)
		return false;
	vgpu_gate_settle(p, context);
	return vgpu_context_leaves(p, context, noted);
}

#define WRAP_CTX_DESTROY(symbol, params, args, context)                                         \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct vgpu_context noted;                                                      \
		bool known = context_leaves(p, context, &noted);                                \
                                                                                                \
		return context_left(p, context, known ? &noted : NULL, real args);              \
	}

#define WRAP_GREEN_DESTROY(symbol, params, args, green)                                         \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		CUdevice ordinal;                                                               \
		bool known = p != NULL && vgpu_contexts_ordinal(p, (CUcontext)(green), &ordinal); \
		CUresult result = real args;                                                    \
		if (known && result == CUDA_SUCCESS)                                            \
			vgpu_context_green_gone(p, (CUcontext)(green), ordinal);                \
		return result;                                                                  \
	}

#endif

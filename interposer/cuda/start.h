/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds INIT and LOOKUP: the ways in. */
#ifndef VGPU_CUDA_START_H
#define VGPU_CUDA_START_H

#include "account/attach.h"
#include "channels/channels.h"
#include "cuda/wrap.h"
#include "driver/visible.h"
#include "process/message.h"
#include "route/lookup.h"

/* Whether the driver is to be called, whose function it is. *shown: it finds other GPUs in the environment
 * than the program. */
static bool may_start(struct vgpu_process *p, const void *function, bool *shown)
{
	if (vgpu_stage(p) == VGPU_ATTACHED)
		vgpu_channels_reach(p, function);
	*shown = vgpu_stage(p) == VGPU_ATTACHED && vgpu_visible_begin(p);
	if (vgpu_stage(p) == VGPU_REFUSED)
		vgpu_message_refused(p);
	return vgpu_stage(p) != VGPU_REFUSED;
}

static CUresult started(struct vgpu_process *p, bool shown, CUresult result)
{
	if (shown)
		vgpu_visible_end(p, result == CUDA_SUCCESS);
	return result;
}

#define WRAP_INIT(symbol, params, args)                                                         \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		struct vgpu_process *p = vgpu_attach();                                         \
		bool shown;                                                                     \
                                                                                                \
		REAL_OR_RETURN(symbol);                                                         \
		return may_start(p, (void *)real, &shown) ? started(p, shown, real args)        \
							  : CUDA_ERROR_NOT_PERMITTED;           \
	}

#define WRAP_LOOKUP(symbol, params, args, name, function, version, flags, status)                 \
	WRAP(symbol, params)                                                                      \
	{                                                                                         \
		REAL_OR_RETURN(symbol);                                                           \
		CUresult result = real args;                                                      \
                                                                                                  \
		if (result == CUDA_SUCCESS && (name) != NULL && (function) != NULL && *(function) != NULL) \
			*(function) = vgpu_symbol_of_proc(name, *(function), version, flags);     \
		return result;                                                                    \
	}

#endif

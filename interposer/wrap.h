/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What all bodies of CUDA wrappers share. */
#ifndef VGPU_WRAP_H
#define VGPU_WRAP_H

#include "process.h"
#include "symbols.h"

/* The wrapper of a row, and the exported name for it. Inside, real is the driver's function. */
#define WRAP(symbol, params)                                                                              \
	vgpu_fn_##symbol vgpu_wrap_##symbol;                                                              \
	extern vgpu_fn_##symbol symbol __attribute__((alias("vgpu_wrap_" #symbol), visibility("default"))); \
	CUresult vgpu_wrap_##symbol params

#define REAL_OR_RETURN(symbol)                          \
	vgpu_fn_##symbol *const real = VGPU_REAL(symbol); \
	if (real == NULL)                               \
		return CUDA_ERROR_NOT_FOUND

/* This process when it is counted. */
static struct vgpu_process *attached(void)
{
	struct vgpu_process *p = vgpu_attach();

	return vgpu_stage(p) == VGPU_ATTACHED ? p : NULL;
}

#endif

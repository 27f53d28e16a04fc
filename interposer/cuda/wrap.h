/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What all bodies of CUDA wrappers share, and the kinds AFTER and IF_FITS. */
#ifndef VGPU_CUDA_WRAP_H
#define VGPU_CUDA_WRAP_H

#include "account/attach.h"
#include "api/symbols.h"
#include "process/process.h"

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

/* The same, and p is this process when it is counted. */
#define BEGIN(symbol)           \
	REAL_OR_RETURN(symbol); \
	struct vgpu_process *p = attached()

/* The driver's function after a few looks, when the process is known and nothing has to be done for it.
 * slow is the same function for all other cases. */
#define WRAP_QUICKLY(symbol, params, args, nothing_to_do, slow)                                           \
	WRAP(symbol, params)                                                                              \
	{                                                                                                 \
		vgpu_fn_##symbol *const real = __atomic_load_n(&vgpu_real[VGPU_SYMBOL_##symbol], __ATOMIC_ACQUIRE); \
		struct vgpu_process *p = __atomic_load_n(&vgpu_this_process, __ATOMIC_ACQUIRE);           \
                                                                                                          \
		if (__builtin_expect(real != NULL && p != NULL && vgpu_stage(p) == VGPU_ATTACHED && (nothing_to_do), 1)) \
			return real args;                                                                 \
		return slow args;                                                                         \
	}

#define WRAP_AFTER(symbol, params, args, tell)                      \
	WRAP(symbol, params)                                        \
	{                                                           \
		REAL_OR_RETURN(symbol);                             \
		struct vgpu_process *p = attached();                \
		CUresult result = real args;                        \
                                                                    \
		if (result == CUDA_SUCCESS && p != NULL)            \
			tell;                                       \
		return result;                                      \
	}

#define UNDO(function, args)                                        \
	do {                                                        \
		vgpu_fn_##function *undo = VGPU_REAL(function);     \
                                                                    \
		if (undo != NULL)                                   \
			undo args;                                  \
	} while (0)

#define WRAP_IF_FITS(symbol, params, args, fits, ...)                                           \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		CUresult result = real args;                                                    \
                                                                                                \
		if (result != CUDA_SUCCESS || p == NULL || (fits))                              \
			return result;                                                          \
		__VA_OPT__(UNDO(__VA_ARGS__);)                                                  \
		return CUDA_ERROR_OUT_OF_MEMORY;                                                \
	}

#endif

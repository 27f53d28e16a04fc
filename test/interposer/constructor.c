/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library that makes a context while it is loaded; see starts.c. */
#include "cuda_types.h"

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);

CUcontext made_by_constructor;

static void __attribute__((constructor)) make(void)
{
	if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&made_by_constructor, 0) != CUDA_SUCCESS)
		made_by_constructor = 0;
}

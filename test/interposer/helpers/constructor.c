/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library that makes a context while it is loaded, see context/cost.c, or does what the program wants of
 * it, which says so by the address of a function in the environment; see gate/blocking_calls.c. */
#include "api/cuda_types.h"

#include <stdint.h>
#include <stdlib.h>

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device);

CUcontext made_by_constructor;

static void __attribute__((constructor)) make(void)
{
	const char *wanted = getenv("VGPU_TEST_AT_LOAD");

	if (wanted != NULL)
		((void (*)(void))(uintptr_t)strtoull(wanted, NULL, 16))();
	else if (cuInit(0) != CUDA_SUCCESS ||
		 cuDevicePrimaryCtxRetain(&made_by_constructor, 0) != CUDA_SUCCESS)
		made_by_constructor = 0;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The least that a program does with a GPU: a context and a first allocation. */
#include "api.h"

int main(void)
{
	CUdeviceptr pointer;
	CUdevice device;

	if (!cuda_load() || cuda_begin(&device) != CUDA_SUCCESS)
		return 1;
	return cu.cuMemAlloc_v2(&pointer, 4096) == CUDA_SUCCESS ? 0 : 1;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * libnvidia-opencl.so.1 of the simulated driver: a loader of OpenCL finds NVIDIA's platform by this name,
 * and here one without devices. It only stands for a way to the GPU besides CUDA. */
#include <stddef.h>

#define CL_PLATFORM_NOT_FOUND_KHR (-1001)

__attribute__((visibility("default"))) int clIcdGetPlatformIDsKHR(unsigned int entries, void **platforms,
								  unsigned int *count);
int clIcdGetPlatformIDsKHR(unsigned int entries, void **platforms, unsigned int *count)
{
	(void)entries;
	(void)platforms;
	if (count != NULL)
		*count = 0;
	return CL_PLATFORM_NOT_FOUND_KHR;
}

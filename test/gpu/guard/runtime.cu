// SPDX-FileCopyrightText: The slurm-vgpu authors
// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

__global__ void seven(int *at)
{
	*at = 7;
}

int main()
{
	int *on_device, here = 0;
	size_t free_bytes, total_bytes;

	if (cudaMalloc(&on_device, sizeof(here)) != cudaSuccess)
		return 1;
	seven<<<1, 1>>>(on_device);
	if (cudaMemcpy(&here, on_device, sizeof(here), cudaMemcpyDeviceToHost) != cudaSuccess ||
	    cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess || here != 7)
		return 1;
	printf("a kernel ran, %zu of %zu MiB free\n", free_bytes >> 20, total_bytes >> 20);
	return 0;
}

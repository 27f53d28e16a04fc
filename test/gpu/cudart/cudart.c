/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program of the CUDA runtime, which is C and has no code for the GPU, so that it can be linked with the
 * runtime of any toolkit, statically or not, by a C compiler alone. Says where each way to allocate ends:
 *
 *   ROW <name> <MiB that worked> <name of the last error>
 *
 * The argument is how many MiB are enough, should nothing be refused. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((size_t)1 << 20)
#define BLOCKS 4096

typedef cudaError_t allocate(void **pointer, size_t bytes);

static size_t enough_mib = 8192;

static cudaError_t plain(void **pointer, size_t bytes)
{
	return cudaMalloc(pointer, bytes);
}

static cudaError_t pitched(void **pointer, size_t bytes)
{
	size_t pitch;

	return cudaMallocPitch(pointer, &pitch, MIB, bytes / MIB);
}

static cudaError_t managed(void **pointer, size_t bytes)
{
	return cudaMallocManaged(pointer, bytes, cudaMemAttachGlobal);
}

static cudaError_t ordered(void **pointer, size_t bytes)
{
	cudaError_t error = cudaMallocAsync(pointer, bytes, NULL);

	return error == cudaSuccess ? cudaStreamSynchronize(NULL) : error;
}

/* Takes pieces until one is refused, then smaller ones; the content of each is set. */
static void fill(const char *name, allocate *take, cudaError_t (*give)(void *))
{
	static void *block[BLOCKS];
	cudaError_t last = cudaSuccess, wrong = cudaSuccess;
	size_t got = 0, mib = 256;
	int n = 0;

	while (mib >= 2 && n < BLOCKS && got < enough_mib) {
		last = take(&block[n], mib * MIB);
		if (last != cudaSuccess) {
			mib /= 2;
			continue;
		}
		if (cudaMemset(block[n], 1, mib * MIB) != cudaSuccess ||
		    cudaDeviceSynchronize() != cudaSuccess)
			wrong = cudaGetLastError();
		got += mib;
		n++;
	}
	printf("ROW %s %zu %s\n", name, got, cudaGetErrorName(last));
	while (n > 0) {
		cudaError_t error = give(block[--n]);

		wrong = error != cudaSuccess ? error : wrong;
	}
	cudaDeviceSynchronize();
	cudaGetLastError(); /* forgets the refusal */
	if (wrong != cudaSuccess)
		printf("WRONG %s: %s\n", name, cudaGetErrorName(wrong));
}

static cudaError_t give_ordered(void *pointer)
{
	return cudaFreeAsync(pointer, NULL);
}

int main(int argc, char **argv)
{
	size_t free_bytes, total_bytes;
	int runtime = 0, driver = 0;
	struct cudaDeviceProp properties;
	cudaError_t error = cudaRuntimeGetVersion(&runtime);

	if (argc > 1)
		enough_mib = strtoull(argv[1], NULL, 10);
	if (error == cudaSuccess)
		error = cudaDriverGetVersion(&driver);
	if (error == cudaSuccess)
		error = cudaMemGetInfo(&free_bytes, &total_bytes);
	if (error == cudaSuccess)
		error = cudaGetDeviceProperties(&properties, 0);
	if (error != cudaSuccess) {
		printf("STOP runtime %d, driver %d: %s\n", runtime, driver, cudaGetErrorString(error));
		return 1;
	}
	printf("VERSION %d %d\nINFO %zu %zu %zu\n", runtime, driver, total_bytes / MIB, free_bytes / MIB,
	       properties.totalGlobalMem / MIB);
	fill("cudaMalloc", plain, cudaFree);
	fill("cudaMallocPitch", pitched, cudaFree);
	fill("cudaMallocAsync", ordered, give_ordered);
	fill("cudaMallocManaged", managed, cudaFree);
	if (cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess)
		printf("END %zu %zu\n", total_bytes / MIB, free_bytes / MIB);
	return 0;
}

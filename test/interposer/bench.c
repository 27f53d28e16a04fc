/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What one intercepted call costs beside the direct one: the same program calls both, in turns, on
 * the simulated driver with many live blocks. Run under LD_PRELOAD; prints medians. */
#include "harness.h"

#include <dlfcn.h>
#include <time.h>

#define LIVE_BLOCKS 5000
#define ROUNDS 31
#define CALLS 2000

static CUresult (*get_info)(size_t *, size_t *);
static CUresult (*alloc)(CUdeviceptr *, size_t);
static CUresult (*release)(CUdeviceptr);
static CUresult (*alloc_async)(CUdeviceptr *, size_t, CUstream);
static CUresult (*release_async)(CUdeviceptr, CUstream);
static CUresult (*launch_graph)(CUgraphExec, CUstream);
static CUstream stream;
static CUgraphExec empty;

static void info(void)
{
	size_t free_bytes, total_bytes;

	get_info(&free_bytes, &total_bytes);
}

static void allocate(void)
{
	CUdeviceptr pointer;

	if (alloc(&pointer, 4096) == CUDA_SUCCESS)
		release(pointer);
}

static void allocate_async(void)
{
	CUdeviceptr pointer;

	if (alloc_async(&pointer, 4096, stream) == CUDA_SUCCESS)
		release_async(pointer, stream);
}

static void launch(void)
{
	launch_graph(empty, stream);
}

static double ns_per_call(void (*call)(void))
{
	struct timespec from, to;

	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < CALLS; i++)
		call();
	clock_gettime(CLOCK_MONOTONIC, &to);
	return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / CALLS;
}

static int ascending(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static void use(CUresult (*lookup)(void *, const char *, void **), void *library)
{
	if (lookup(library, "cuMemGetInfo_v2", (void **)&get_info) || lookup(library, "cuMemAlloc_v2", (void **)&alloc) ||
	    lookup(library, "cuMemFree_v2", (void **)&release) || lookup(library, "cuMemAllocAsync", (void **)&alloc_async) ||
	    lookup(library, "cuMemFreeAsync", (void **)&release_async) ||
	    lookup(library, "cuGraphLaunch", (void **)&launch_graph))
		exit(1);
}

static CUresult wrapped(void *library, const char *name, void **function)
{
	*function = dlsym(library, name);
	return *function == NULL;
}

int main(void)
{
	/* The simulated driver looks names up for itself: what it finds are its own functions. */
	CUresult (*direct)(void *, const char *, void **);
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	const struct {
		const char *name;
		void (*call)(void);
	} rows[] = {{"cuMemGetInfo", info}, {"cuMemAlloc + cuMemFree", allocate}, {"cuMemAllocAsync + cuMemFreeAsync", allocate_async},
		    {"cuGraphLaunch, no memory nodes", launch}};
	CUgraph graph;

	gpus(0);
	setenv("CUDA_VISIBLE_DEVICES", UUID0, 1); /* as in a job of one slice */
	step_make(1, 0, 4000, 4000);
	cuda_begin(0);
	*(void **)&direct = dlsym(library, "cuSimDlsym");
	if (direct == NULL || cuStreamCreate(&stream, 0) != CUDA_SUCCESS)
		return 1;
	if (cuGraphCreate(&graph, 0) != CUDA_SUCCESS || cuGraphInstantiateWithFlags(&empty, graph, 0) != CUDA_SUCCESS)
		return 1;
	use(wrapped, library);
	for (int i = 0; i < LIVE_BLOCKS; i++) {
		CUdeviceptr pointer;

		if (alloc(&pointer, 4096) != CUDA_SUCCESS)
			return 1;
	}
	printf("%-34s %12s %12s %12s %8s\n", "with 5000 live blocks", "direct ns", "wrapped ns", "added ns", "ratio");
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		double plain[ROUNDS], ours[ROUNDS];

		for (int i = 0; i < ROUNDS; i++) {
			use(direct, library);
			plain[i] = ns_per_call(rows[r].call);
			use(wrapped, library);
			ours[i] = ns_per_call(rows[r].call);
		}
		qsort(plain, ROUNDS, sizeof(double), ascending);
		qsort(ours, ROUNDS, sizeof(double), ascending);
		printf("%-34s %12.1f %12.1f %12.1f %8.2f\n", rows[r].name, plain[ROUNDS / 2], ours[ROUNDS / 2],
		       ours[ROUNDS / 2] - plain[ROUNDS / 2], ours[ROUNDS / 2] / plain[ROUNDS / 2]);
	}
	remove_gpus();
	return 0;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Calls for memory, with many live blocks. Run under LD_PRELOAD. */
#include "bench.h"

#define LIVE_BLOCKS 5000

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

static void use(bench_lookup *lookup, void *library)
{
	if (lookup(library, "cuMemGetInfo_v2", (void **)&get_info) ||
	    lookup(library, "cuMemAlloc_v2", (void **)&alloc) ||
	    lookup(library, "cuMemFree_v2", (void **)&release) ||
	    lookup(library, "cuMemAllocAsync", (void **)&alloc_async) ||
	    lookup(library, "cuMemFreeAsync", (void **)&release_async) ||
	    lookup(library, "cuGraphLaunch", (void **)&launch_graph))
		exit(1);
}

int main(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	const struct bench_row rows[] = {{"cuMemGetInfo", info, NULL},
					 {"cuMemAlloc + cuMemFree", allocate, NULL},
					 {"cuMemAllocAsync + cuMemFreeAsync", allocate_async, NULL},
					 {"cuGraphLaunch, no memory nodes", launch, NULL}};
	CUgraph graph;

	gpus(0);
	setenv("CUDA_VISIBLE_DEVICES", UUID0, 1); /* as in a job of one slice */
	step_make(1, 0, 4000, 4000);
	cuda_begin(0);
	if (bench_direct(library) == NULL || cuStreamCreate(&stream, 0) != CUDA_SUCCESS)
		return 1;
	if (cuGraphCreate(&graph, 0) != CUDA_SUCCESS ||
	    cuGraphInstantiateWithFlags(&empty, graph, 0) != CUDA_SUCCESS)
		return 1;
	use(bench_ours, library);
	for (int i = 0; i < LIVE_BLOCKS; i++) {
		CUdeviceptr pointer;

		if (alloc(&pointer, 4096) != CUDA_SUCCESS)
			return 1;
	}
	bench_head("with 5000 live blocks");
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++)
		bench_print(&rows[r], use, library);
	remove_gpus();
	return 0;
}

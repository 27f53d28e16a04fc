/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What single driver calls cost. A process that lives for the whole measurement: it reads the name of
 * an operation from its input, runs one round of it, and prints the median of its batches in
 * nanoseconds per call. So two of them, with and without the interposer, can take turns. */
#include "api.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_BATCHES 20
#define LIVE_BLOCKS 5000
#define LIVE_BYTES (64u << 10)
#define BLOCK_BYTES (2u << 20)
#define GRAPH_NODES 10

static CUstream stream;
static CUfunction null_kernel;
static CUgraphExec graph;
static CUdeviceptr live[LIVE_BLOCKS];

static const char null_text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n";

static int launch(void)
{
	return (int)cu.cuLaunchKernel(null_kernel, 1, 1, 1, 1, 1, 1, 0, stream, NULL, NULL);
}

static int launch_ex(void)
{
	const CUlaunchConfig config = {
		.gridDimX = 1,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = 1,
		.blockDimY = 1,
		.blockDimZ = 1,
		.hStream = stream,
	};

	return (int)cu.cuLaunchKernelEx(&config, null_kernel, NULL, NULL);
}

static int launch_graph(void)
{
	return (int)cu.cuGraphLaunch(graph, stream);
}

static int alloc_async(void)
{
	CUdeviceptr pointer;
	int error = (int)cu.cuMemAllocAsync(&pointer, BLOCK_BYTES, stream);

	return error != 0 ? error : (int)cu.cuMemFreeAsync(pointer, stream);
}

/* Nothing is queued: what is measured is the call. The pool holds memory that it keeps. */
static int synchronise(void)
{
	return (int)cu.cuStreamSynchronize(stream);
}

static int alloc_plain(void)
{
	CUdeviceptr pointer;
	int error = (int)cu.cuMemAlloc_v2(&pointer, BLOCK_BYTES);

	return error != 0 ? error : (int)cu.cuMemFree_v2(pointer);
}

static int mem_info(void)
{
	size_t free_bytes, total_bytes;

	return (int)cu.cuMemGetInfo_v2(&free_bytes, &total_bytes);
}

/* Small batches keep the launch queue from filling up, which would measure the GPU. */
static const struct operation {
	const char *name;
	int (*call)(void);
	unsigned int batches, calls;
	int with_live_blocks;
} operations[] = {
	{ "launch", launch, 20, 400, 0 },	{ "launch_ex", launch_ex, 20, 400, 0 },
	{ "graph", launch_graph, 20, 50, 0 },	{ "alloc_async", alloc_async, 20, 200, 0 },
	{ "alloc", alloc_plain, 5, 20, 0 },	{ "mem_info", mem_info, 10, 100, 0 },
	{ "alloc_async_5000", alloc_async, 20, 200, 1 }, { "sync", synchronise, 20, 200, 1 },
};

static int make_graph(void)
{
	CUDA_KERNEL_NODE_PARAMS node = {.func = null_kernel,
					.gridDimX = 1,
					.gridDimY = 1,
					.gridDimZ = 1,
					.blockDimX = 1,
					.blockDimY = 1,
					.blockDimZ = 1};
	CUgraphNode last[GRAPH_NODES];
	CUgraph plan;
	int error;

	if (cu.cuGraphCreate == NULL || cu.cuGraphAddKernelNode_v2 == NULL)
		return 0;
	error = (int)cu.cuGraphCreate(&plan, 0);
	for (int i = 0; i < GRAPH_NODES && error == 0; i++)
		error = (int)cu.cuGraphAddKernelNode_v2(&last[i], plan, i == 0 ? NULL : &last[i - 1], i != 0,
							&node);
	return error != 0 ? error : (int)cu.cuGraphInstantiateWithFlags(&graph, plan, 0);
}

static int prepare(void)
{
	cuuint64_t keep = UINT64_MAX;
	CUmemoryPool pool;
	CUmodule module;
	CUdevice device;
	int error = (int)cuda_begin(&device);

	if (error == 0)
		error = (int)cu.cuModuleLoadData(&module, null_text);
	if (error == 0)
		error = (int)cu.cuModuleGetFunction(&null_kernel, module, "nothing");
	if (error == 0)
		error = (int)cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
	/* As PyTorch sets it: else every synchronisation would give the memory back. */
	if (error == 0 && (error = (int)cu.cuDeviceGetDefaultMemPool(&pool, device)) == 0)
		error = (int)cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
	return error != 0 ? error : make_graph();
}

static int want_live_blocks(int wanted)
{
	int error = 0;

	if (wanted && live[0] == 0)
		for (int i = 0; i < LIVE_BLOCKS && error == 0; i++)
			error = (int)cu.cuMemAllocAsync(&live[i], LIVE_BYTES, stream);
	if (!wanted && live[0] != 0)
		for (int i = 0; i < LIVE_BLOCKS && error == 0; i++) {
			error = (int)cu.cuMemFreeAsync(live[i], stream);
			live[i] = 0;
		}
	return error != 0 ? error : (int)cu.cuStreamSynchronize(stream);
}

static int ascending(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

static int round_of(const struct operation *o, double *ns)
{
	double batch[MOST_BATCHES];
	int error = want_live_blocks(o->with_live_blocks);

	/* One batch more than counted: the first warms up. */
	for (unsigned int b = 0; b <= o->batches && error == 0; b++) {
		struct timespec from, to;

		clock_gettime(CLOCK_MONOTONIC, &from);
		for (unsigned int i = 0; i < o->calls && error == 0; i++)
			error = o->call();
		clock_gettime(CLOCK_MONOTONIC, &to);
		batch[b == 0 ? 0 : b - 1] =
			((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) /
			o->calls;
		if (error == 0)
			error = (int)cu.cuStreamSynchronize(stream);
	}
	qsort(batch, o->batches, sizeof(double), ascending);
	*ns = batch[o->batches / 2];
	return error;
}

int main(int argc, char **argv)
{
	char line[64];

	if (argc > 1) {
		cpu_set_t cpus;

		CPU_ZERO(&cpus);
		CPU_SET((size_t)atoi(argv[1]), &cpus);
		sched_setaffinity(0, sizeof(cpus), &cpus);
	}
	if (!cuda_load() || prepare() != 0) {
		puts("error: CUDA does not start");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		double ns = 0;
		int error = -1;

		line[strcspn(line, "\n")] = '\0';
		for (size_t i = 0; i < sizeof(operations) / sizeof(operations[0]); i++)
			if (strcmp(line, operations[i].name) == 0 &&
			    (operations[i].call != launch_graph || graph != NULL))
				error = round_of(&operations[i], &ns);
		if (error == 0)
			printf("%.2f\n", ns);
		else
			printf("error: %s: %d\n", line, error);
		fflush(stdout);
	}
	return 0;
}

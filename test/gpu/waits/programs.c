/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "programs.h"
#include "spin.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define KERNEL_US 300u
#define STEPS 4

static void rest(unsigned ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

static CUresult work(CUstream stream, unsigned kernels)
{
	for (unsigned i = 0; i < kernels; i++)
		TRY(launch(spin, KERNEL_US, stream));
	return CUDA_SUCCESS;
}

/* A graph that allocates, uses, frees and allocates again. */
static CUresult reusing_graph(CUgraphExec *exec)
{
	CUdeviceptr block;
	CUstream stream;
	CUgraph graph;

	TRY(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
	TRY(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	for (int i = 0; i < STEPS; i++) {
		TRY(cu.cuMemAllocAsync(&block, (8 + 8 * (unsigned)i) * MIB, stream));
		TRY(launch(spin, KERNEL_US, stream));
		TRY(cu.cuMemFreeAsync(block, stream));
	}
	TRY(cu.cuStreamEndCapture(stream, &graph));
	TRY(cu.cuGraphInstantiateWithFlags(exec, graph, 0));
	TRY(cu.cuGraphDestroy(graph));
	return cu.cuStreamDestroy_v2(stream);
}

static CUresult long_graph(CUgraphExec *exec)
{
	CUdeviceptr block;
	CUstream stream;
	CUgraph graph;

	TRY(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
	TRY(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	TRY(cu.cuMemAllocAsync(&block, 64 * MIB, stream));
	TRY(launch(spin, 20 * KERNEL_US, stream));
	TRY(cu.cuMemFreeAsync(block, stream));
	TRY(cu.cuStreamEndCapture(stream, &graph));
	TRY(cu.cuGraphInstantiateWithFlags(exec, graph, 0));
	TRY(cu.cuGraphDestroy(graph));
	return cu.cuStreamDestroy_v2(stream);
}

/* Launched again and again, in one stream and in others, with what the driver keeps given back in between. */
static CUresult graph_memory(void)
{
	CUgraphExec exec[3];
	CUstream stream[3];

	for (int i = 0; i < 3; i++) {
		TRY(reusing_graph(&exec[i]));
		TRY(cu.cuStreamCreate(&stream[i], STREAM_NON_BLOCKING));
	}
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < 3; i++)
			TRY(cu.cuGraphLaunch(exec[i], stream[round % 4 == 0 ? 0 : (i + round) % 3]));
		if (round % 3 == 1)
			TRY(cu.cuCtxSynchronize());
		if (round % 4 == 3)
			TRY(cu.cuDeviceGraphMemTrim(0));
		if (round % 3 == 2)
			rest(60);
	}
	TRY(cu.cuCtxSynchronize());
	for (int i = 0; i < 3; i++)
		TRY(cu.cuGraphExecDestroy(exec[i]));
	return cu.cuDeviceGraphMemTrim(0);
}

/* Many that take turns with the same memory in one stream, and then want it at once in as many streams: what
 * was theirs together has to be mapped again while some are at work. */
#define MANY 6
static CUresult graph_streams(void)
{
	CUgraphExec exec[MANY];
	CUstream stream[MANY];

	for (int i = 0; i < MANY; i++) {
		TRY(long_graph(&exec[i]));
		TRY(cu.cuStreamCreate(&stream[i], STREAM_NON_BLOCKING));
	}
	for (int round = 0; round < 6; round++) {
		for (int i = 0; i < MANY; i++)
			TRY(cu.cuGraphLaunch(exec[i], stream[round % 2 == 0 ? 0 : (i + round) % MANY]));
		if (round % 2 == 1)
			TRY(cu.cuCtxSynchronize());
		rest(80);
	}
	return cu.cuCtxSynchronize();
}

/* Graphs that allocate and leave it to others to free. */
static CUresult leaving_graph(CUgraphExec *exec, CUdeviceptr *block)
{
	CUstream stream;
	CUgraph graph;

	TRY(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
	TRY(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	TRY(cu.cuMemAllocAsync(block, 64 * MIB, stream));
	TRY(launch(spin, KERNEL_US, stream));
	TRY(cu.cuStreamEndCapture(stream, &graph));
	TRY(cu.cuGraphInstantiateWithFlags(exec, graph, 0));
	TRY(cu.cuGraphDestroy(graph));
	return cu.cuStreamDestroy_v2(stream);
}

/* First all in one stream, so that they share memory, then each in its own, so that they do not, and after a
 * pause each time; what is left over is freed in a stream or at once. */
static CUresult graph_footprint(void)
{
	CUgraphExec exec[3], leaving[3];
	CUdeviceptr block[3];
	CUstream stream[3];

	for (int i = 0; i < 3; i++) {
		TRY(reusing_graph(&exec[i]));
		TRY(leaving_graph(&leaving[i], &block[i]));
		TRY(cu.cuStreamCreate(&stream[i], STREAM_NON_BLOCKING));
	}
	for (int round = 0; round < 8; round++) {
		for (int i = 0; i < 3; i++)
			TRY(cu.cuGraphLaunch(exec[i], stream[0]));
		rest(round % 2 * 40);
		for (int i = 0; i < 3; i++)
			TRY(cu.cuGraphLaunch(exec[i], stream[(i + round) % 3]));
		TRY(cu.cuCtxSynchronize());
		rest(40);
		for (int i = 0; i < 3; i++)
			TRY(cu.cuGraphLaunch(leaving[i], stream[i]));
		for (int i = 0; i < 3; i++)
			TRY(round % 2 == 0 ? cu.cuMemFreeAsync(block[i], stream[i])
					   : cu.cuMemFree_v2(block[i]));
		rest(40);
		for (int i = 2; i >= 0; i--)
			TRY(cu.cuGraphLaunch(exec[i], stream[(i + 1) % 3]));
		if (round == 4)
			TRY(cu.cuDeviceGraphMemTrim(0));
	}
	return cu.cuCtxSynchronize();
}

/* Functions on the host between kernels, each of which starts the next. */
static unsigned host_runs;

static void run_on_host(void *data)
{
	(void)data;
	__atomic_add_fetch(&host_runs, 1, __ATOMIC_RELAXED);
	rest(1);
}

static CUresult callbacks(void)
{
	CUstream stream[4];

	for (int i = 0; i < 4; i++)
		TRY(cu.cuStreamCreate(&stream[i], i % 2 == 0 ? STREAM_NON_BLOCKING : 0));
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < 4; i++) {
			TRY(work(stream[i], 2));
			TRY(cu.cuLaunchHostFunc(stream[i], run_on_host, NULL));
		}
		if (round % 5 == 4)
			TRY(cu.cuCtxSynchronize());
	}
	TRY(cu.cuCtxSynchronize());
	return host_runs == 80 ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

/* All work goes with the context, and a new one begins as the first did. */
static CUresult reset(void)
{
	for (int round = 0; round < 3; round++) {
		CUstream stream;

		TRY(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
		TRY(work(stream, 12));
		TRY(work(NULL, 4));
		TRY(cu.cuDevicePrimaryCtxReset_v2(0));
		TRY(cuda_begin());
	}
	TRY(work(NULL, 4));
	return cu.cuCtxSynchronize();
}

/* What is held back when a child is made is let go for the parent: the word is in memory that both have
 * then. */
static CUresult forks(void)
{
	for (int round = 0; round < 10; round++) {
		pid_t child;

		TRY(work(NULL, 8));
		child = fork();
		if (child == 0) {
			rest(20);
			_exit(0);
		}
		TRY(work(NULL, 8));
		TRY(cu.cuCtxSynchronize());
		waitpid(child, NULL, 0);
	}
	return CUDA_SUCCESS;
}

/* Stopped and continued by somebody else, in the middle of whatever it does. */
static CUresult stopped(void)
{
	pid_t self = getpid(), child = fork();

	if (child == 0) {
		for (int i = 0; i < 20; i++) {
			rest(37);
			kill(self, SIGSTOP);
			rest(23);
			kill(self, SIGCONT);
		}
		_exit(0);
	}
	for (int round = 0; round < 12; round++) {
		struct things t = {0};

		TRY(work(NULL, 8));
		TRY(cu.cuMemAlloc_v2(&t.block, BLOCK_BYTES));
		TRY(cu.cuMemFree_v2(t.block));
		rest(round % 2 * 40);
	}
	TRY(cu.cuCtxSynchronize());
	waitpid(child, NULL, 0);
	return CUDA_SUCCESS;
}

/* Ends with all that in flight. */
static CUresult exits(void)
{
	CUgraphExec exec;
	CUstream stream;

	TRY(reusing_graph(&exec));
	TRY(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
	TRY(cu.cuGraphLaunch(exec, stream));
	rest(60);
	TRY(cu.cuGraphLaunch(exec, stream));
	return work(stream, 24);
}

const struct program programs[] = {
	{"graph-memory", graph_memory}, {"graph-footprint", graph_footprint}, {"graph-streams", graph_streams},
	{"callbacks", callbacks}, {"reset", reset}, {"forks", forks}, {"stopped", stopped}, {"exits", exits},
};
const unsigned programs_count = sizeof(programs) / sizeof(programs[0]);

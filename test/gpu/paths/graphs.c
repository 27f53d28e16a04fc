/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a graph allocates when it is launched, and keeps until it is trimmed. */
#include "parts.h"

static CUstream stream;
static CUgraph graph;
static CUgraphExec exec;
static CUdeviceptr held;
static uint64_t held_bytes;

static int start(void)
{
	NEEDS(cuGraphAddMemAllocNode);
	NEEDS(cuDeviceGraphMemTrim);
	return cu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS ? 0 : PATH_BROKEN;
}

static int run(void)
{
	int error = (int)cu.cuGraphInstantiateWithFlags(&exec, graph, 0);

	if (error == 0) {
		error = (int)cu.cuGraphLaunch(exec, stream);
		if (error == 0)
			error = (int)cu.cuStreamSynchronize(stream);
		if (error != 0)
			cu.cuGraphExecDestroy(exec);
	}
	if (error != 0) {
		cu.cuGraphDestroy(graph);
		cu.cuCtxSynchronize();
		cu.cuDeviceGraphMemTrim(the_device);
	}
	return error;
}

static int build(uint64_t bytes, bool with_free)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = the_device } },
		.bytesize = bytes,
	};
	CUgraphNode node, end;
	int error = (int)cu.cuGraphCreate(&graph, 0);

	if (error != 0)
		return error;
	error = (int)cu.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params);
	if (error == 0 && with_free)
		error = (int)cu.cuGraphAddMemFreeNode(&end, graph, &node, 1, params.dptr);
	if (error != 0)
		cu.cuGraphDestroy(graph);
	held = params.dptr;
	held_bytes = bytes;
	return error;
}

static int take_inside(uint64_t bytes)
{
	int error = build(bytes, true);

	return error != 0 ? error : run();
}

static void give_inside(void)
{
	cu.cuGraphExecDestroy(exec);
	cu.cuGraphDestroy(graph);
	cu.cuDeviceGraphMemTrim(the_device);
}

static int take_outside(uint64_t bytes)
{
	int error = build(bytes, false);

	return error != 0 ? error : run();
}

static int touch_outside(void)
{
	return touch_bytes(held, held_bytes);
}

static void give_outside(void)
{
	cu.cuMemFree_v2(held);
	give_inside();
}

static int take_captured(uint64_t bytes)
{
	int error = (int)cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	int ended;

	if (error != 0)
		return error;
	error = (int)cu.cuMemAllocAsync(&held, bytes, stream);
	if (error == 0)
		error = (int)cu.cuMemFreeAsync(held, stream);
	graph = NULL;
	ended = (int)cu.cuStreamEndCapture(stream, &graph);
	if (error == 0 && ended == 0)
		return run();
	if (graph != NULL)
		cu.cuGraphDestroy(graph);
	return error != 0 ? error : ended;
}

struct path graph_paths[] = {
	{ .name = "graph: alloc and free nodes", .granule = GRANULE, .start = start, .take = take_inside, .give = give_inside },
	{ .name = "graph: alloc node, cuMemFree", .granule = GRANULE, .start = start, .take = take_outside, .give = give_outside, .touch = touch_outside },
	{ .name = "graph: captured cuMemAllocAsync", .granule = GRANULE, .start = start, .take = take_captured, .give = give_inside },
	{ .name = NULL },
};

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory nodes of graphs: nothing until a graph is launched, then what the driver keeps for graphs. */
#include "harness.h"

#define AUTO_FREE 1u
#define UPLOAD 2u
#define GLOBAL 0
#define ACTIVE 1

static struct step step;
static CUstream stream;

static uint64_t used(void)
{
	size_t own, all;

	CHECK_IS(step_slots_bytes(&step), step.ledger->used_bytes[0]);
	CHECK_IS(cuSimHeld(0, &own, &all), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], all);
	return step.ledger->used_bytes[0];
}

static void begin(uint64_t limit_mib)
{
	gpus(0);
	step = step_make(2000 + (uint32_t)getpid(), 0, limit_mib, limit_mib);
	cuda_begin(0);
	CHECK_IS(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
}

static CUdeviceptr add(CUgraph graph, size_t bytes, bool with_free)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = bytes,
	};
	CUgraphNode node, end;

	CHECK_IS(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
	if (with_free)
		CHECK_IS(cuGraphAddMemFreeNode(&end, graph, &node, 1, params.dptr), CUDA_SUCCESS);
	return params.dptr;
}

static CUgraph graph_of(size_t bytes)
{
	CUgraph graph = NULL;

	CHECK_IS(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
	add(graph, bytes, true);
	return graph;
}

static CUgraphExec exec_of(size_t bytes)
{
	CUgraph graph = graph_of(bytes);
	CUgraphExec exec = NULL;

	CHECK_IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphDestroy(graph), CUDA_SUCCESS);
	return exec;
}

static void a_graph_costs_what_is_kept_for_it(void)
{
	CUgraphExec first, second;

	begin(200);
	first = exec_of(100 * MIB);
	second = exec_of(60 * MIB);
	CHECK_IS(used(), 0);
	CHECK_IS(cuGraphLaunch(first, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(cuGraphLaunch_ptsz(first, NULL), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	/* Graphs share it. */
	CHECK_IS(cuGraphLaunch(second, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(cuGraphExecDestroy(first), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuGraphUpload(second, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(cuGraphUpload_ptsz(second, NULL), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuGraphExecDestroy(second), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_graph_that_does_not_fit_is_not_launched(void)
{
	CUgraphExec small, large;
	CUdeviceptr a;

	begin(128);
	large = exec_of(129 * MIB);
	small = exec_of(128 * MIB);
	CHECK_IS(cuGraphLaunch(large, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuGraphUpload(large, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 0);
	CHECK_IS(cuGraphLaunch(small, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(step.ledger->refusals[0], 2);
	/* What no graph uses is there for the rest of the process, and for graphs again afterwards. */
	CHECK_IS(cuMemAlloc_v2(&a, 128 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(cuGraphLaunch(small, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(small, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
}

static void every_way_to_instantiate_is_seen(void)
{
	CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = UPLOAD, .hUploadStream = NULL};
	CUresult (*of_12)(CUgraphExec *, CUgraph, unsigned long long);
	CUgraph graph, outer;
	CUgraphNode node;
	CUgraphExec exec;

	begin(100);
	graph = graph_of(200 * MIB);
	CHECK_IS(cuGraphInstantiate(&exec, graph, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuGraphInstantiate_v2(&exec, graph, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuGetProcAddress("cuGraphInstantiate", (void **)&of_12, 12000, 0), CUDA_SUCCESS);
	CHECK_IS(of_12(&exec, graph, 0), CUDA_SUCCESS);
	/* Without LD_PRELOAD the driver finds its own. */
	if ((void *)of_12 == (void *)cuGraphInstantiateWithFlags)
		CHECK_IS(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	/* This one takes the memory at once: too much is given back. */
	CHECK_IS(cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 0);
	CHECK_IS(cuGraphCreate(&outer, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphAddChildGraphNode(&node, outer, NULL, 0, graph), CUDA_SUCCESS);
	CHECK_IS(cuGraphInstantiateWithFlags(&exec, outer, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
	graph = graph_of(60 * MIB);
	CHECK_IS(cuGraphInstantiateWithParams_ptsz(&exec, graph, &params), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
}

static void memory_that_outlives_its_graph_stays_charged(void)
{
	CUgraph graph;
	CUgraphExec exec;
	CUdeviceptr a;

	begin(100);
	CHECK_IS(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
	a = add(graph, 50 * MIB, false);
	CHECK_IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK(cuGraphLaunch(exec, stream) != CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	CHECK_IS(cuGraphInstantiateWithFlags(&exec, graph, AUTO_FREE), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++)
		CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void what_is_captured_is_not_charged_and_the_capture_lives(void)
{
	CUstream other;
	size_t free_bytes, total_bytes;
	CUgraph graph = NULL;
	CUgraphExec exec;
	CUdeviceptr a, b;
	int status = 0;

	begin(200);
	CHECK_IS(cuStreamCreate(&other, 1), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&b, 20 * MIB, other), CUDA_SUCCESS);
	CHECK_IS(cuStreamBeginCapture_v2(stream, GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 100 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	/* More than the limit: to be refused when it is launched. */
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	/* What may be called meanwhile, and asks about pools, does no harm. */
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(b, other), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(other), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
	CHECK_IS(status, ACTIVE);
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	CHECK_IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	/* A launch that is captured takes nothing either. */
	CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
	CHECK_IS(cuStreamBeginCapture_v2(stream, GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_graph_without_memory_is_left_alone(void)
{
	CUgraph graph;
	CUgraphNode node;
	CUgraphExec exec;

	begin(2);
	CHECK_IS(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphAddEmptyNode(&node, graph, NULL, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
	CHECK_IS(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	CHECK(cuGraphExecDestroy(exec) != CUDA_SUCCESS);
	CHECK(cuGraphLaunch(exec, stream) != CUDA_SUCCESS);
	CHECK(cuGraphInstantiateWithFlags(&exec, NULL, 0) != CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* Launches that nothing has to be done for are let pass without a look for a while. */
static void the_first_graph_with_memory_is_charged_at_its_launch_all_the_same(void)
{
	CUgraphExec empty, exec;
	CUgraph graph;

	begin(100);
	CHECK_IS(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphInstantiateWithFlags(&empty, graph, 0), CUDA_SUCCESS);
	for (int round = 0; round < 3; round++) {
		CHECK_IS(cuGraphLaunch(empty, stream), CUDA_SUCCESS);
		exec = exec_of(60 * MIB);
		CHECK_IS(cuGraphLaunch(exec, stream), CUDA_SUCCESS);
		CHECK_IS(used(), 64 * MIB);
		CHECK_IS(cuGraphExecDestroy(exec), CUDA_SUCCESS);
		CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
		CHECK_IS(cuDeviceGraphMemTrim(0), CUDA_SUCCESS);
		CHECK_IS(used(), 0);
		CHECK_IS(cuGraphLaunch(empty, stream), CUDA_SUCCESS);
		exec = exec_of(200 * MIB);
		CHECK_IS(cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_IS(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	}
}

int main(void)
{
	gpus(0);
	CASE(a_graph_costs_what_is_kept_for_it);
	CASE(a_graph_that_does_not_fit_is_not_launched);
	CASE(every_way_to_instantiate_is_seen);
	CASE(memory_that_outlives_its_graph_stays_charged);
	CASE(what_is_captured_is_not_charged_and_the_capture_lives);
	CASE(a_graph_without_memory_is_left_alone);
	CASE(the_first_graph_with_memory_is_charged_at_its_launch_all_the_same);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory nodes, what the driver keeps for graphs, and captures. */
#include "harness.h"

#define NODE "devices=2\nmem_mib=1000\ncontext_mib=100\n"
#define RESERVED 2

static uint64_t kept_mib(void)
{
	cuuint64_t bytes;

	OK(cuDeviceGetGraphMemAttribute(0, RESERVED, &bytes));
	EQ(used_mib(), 100 + bytes / SIM_MIB);
	return bytes / SIM_MIB;
}

static CUdeviceptr add(CUgraph graph, size_t bytes, bool with_free)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			       .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } },
		.bytesize = bytes,
	};
	CUgraphNode node, end;

	OK(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	if (with_free)
		OK(cuGraphAddMemFreeNode(&end, graph, &node, 1, params.dptr));
	return params.dptr;
}

TEST(a_graph_takes_its_memory_when_it_is_launched_and_keeps_it_until_it_is_trimmed)
{
	CUgraph graph;
	CUgraphExec exec;

	configure(NODE);
	start_cuda();
	OK(cuGraphCreate(&graph, 0));
	for (int i = 0; i < 4; i++) /* what is freed within the graph is used again by it */
		add(graph, 100 * SIM_MIB, true);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EQ(kept_mib(), 0);
	OK(cuGraphLaunch(exec, NULL));
	EQ(kept_mib(), 128);
	OK(cuGraphLaunch(exec, NULL));
	EQ(kept_mib(), 128);
	OK(cuGraphExecDestroy(exec));
	EQ(kept_mib(), 128);
	OK(cuDeviceGraphMemTrim(0));
	EQ(kept_mib(), 0);
}

TEST(small_nodes_share_a_chunk_and_large_ones_have_their_own)
{
	static const struct {
		int count;
		uint64_t bytes, want_mib;
	} rows[] = {{3, 1000, 32}, {20, 3 * SIM_MIB, 96}, {1, 33 * SIM_MIB, 64}, {4, 100 * SIM_MIB, 512}};

	configure(NODE);
	start_cuda();
	for (size_t r = 0; r < sizeof(rows) / sizeof(rows[0]); r++) {
		CUdeviceptr pointer[20];
		CUgraph graph;
		CUgraphExec exec;

		test_row("%d of %llu", rows[r].count, (unsigned long long)rows[r].bytes);
		OK(cuGraphCreate(&graph, 0));
		for (int i = 0; i < rows[r].count; i++)
			pointer[i] = add(graph, rows[r].bytes, false);
		OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		OK(cuGraphLaunch(exec, NULL));
		EQ(kept_mib(), rows[r].want_mib);
		for (int i = 0; i < rows[r].count; i++)
			OK(cuMemFreeAsync(pointer[i], NULL));
		OK(cuGraphExecDestroy(exec));
		OK(cuDeviceGraphMemTrim(0));
		EQ(kept_mib(), 0);
	}
}

TEST(a_graph_that_the_device_has_no_room_for_fails_at_launch)
{
	CUgraph graph;
	CUgraphExec exec;

	configure(NODE);
	start_cuda();
	OK(cuGraphCreate(&graph, 0));
	add(graph, 1000 * SIM_MIB, true);
	OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
	EQ(cuGraphLaunch(exec, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	EQ(kept_mib(), 0);
}

TEST(a_capture_makes_nodes_and_forbids_what_is_unsafe)
{
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED, status;
	CUmemoryPool pool;
	cuuint64_t bytes;
	CUdeviceptr p;
	CUstream stream;
	CUgraph graph;
	size_t nodes;

	configure(NODE);
	start_cuda();
	OK(cuStreamCreate(&stream, SIM_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&pool, 0));
	OK(cuStreamBeginCapture_v2(stream, 0));
	OK(cuMemAllocAsync(&p, 10 * SIM_MIB, stream));
	OK(cuMemFreeAsync(p, stream));
	EQ(used_mib(), 100);
	OK(cuStreamIsCapturing(stream, &status));
	EQ(status, 1);
	/* Allowed to a thread that says so. */
	OK(cuThreadExchangeStreamCaptureMode(&relaxed));
	EQ(relaxed, 0);
	OK(cuMemPoolGetAttribute(pool, SIM_POOL_RESERVED_CURRENT, &bytes));
	OK(cuThreadExchangeStreamCaptureMode(&relaxed));
	OK(cuStreamEndCapture(stream, &graph));
	OK(cuGraphGetNodes(graph, NULL, &nodes));
	EQ(nodes, 2);
	OK(cuGraphDestroy(graph));
	OK(cuStreamBeginCapture_v2(stream, 0));
	EQ(cuMemPoolGetAttribute(pool, SIM_POOL_RESERVED_CURRENT, &bytes), 900);
	EQ(cuStreamEndCapture(stream, &graph), 901);
	EQ(cuStreamBeginCapture_v2(NULL, 0), 900);
	OK(cuStreamIsCapturing(stream, &status));
	EQ(status, 0);
}

TEST(a_pool_of_host_memory_takes_none_of_the_device)
{
	CUmemPoolProps props = { .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .location = { CU_MEM_LOCATION_TYPE_HOST, 0 } };
	CUmemoryPool pool;
	CUdeviceptr p;

	configure(NODE);
	start_cuda();
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemAllocFromPoolAsync(&p, 2000 * SIM_MIB, pool, NULL));
	EQ(used_mib(), 100);
	OK(cuMemFreeAsync(p, NULL));
	OK(cuMemPoolDestroy(pool));
	EQ(used_mib(), 100);
}

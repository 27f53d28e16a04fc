/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#define NODE_US 200u
#define AUTO_FREE 1ull

static CUdeviceptr captured_block; /* the last one */

/* Captures kernels, or kernels that use memory of the graph's own; kept: which the graph does not free. */
static CUresult capture(CUgraph *graph, bool memory, bool kept)
{
	CUdeviceptr block = 0;
	CUstream stream;

	TRY(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
	TRY(cu.cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	if (memory)
		TRY(cu.cuMemAllocAsync(&block, 4 * BLOCK_BYTES, stream));
	captured_block = block;
	TRY(launch(spin, NODE_US, stream));
	if (memory && !kept)
		TRY(cu.cuMemFreeAsync(block, stream));
	TRY(cu.cuStreamEndCapture(stream, graph));
	return cu.cuStreamDestroy_v2(stream);
}

static CUresult make_plain(struct things *t)
{
	return capture(&t->graph, false, false);
}

static CUresult make_memory(struct things *t)
{
	return capture(&t->graph, true, false);
}

static CUresult instantiate(struct things *t)
{
	return cu.cuGraphInstantiateWithFlags(&t->exec, t->graph, 0);
}

static CUresult end_exec(struct things *t)
{
	return cu.cuGraphExecDestroy(t->exec);
}

static CUresult end_graph(struct things *t)
{
	return cu.cuGraphDestroy(t->graph);
}

static CUresult end_both(struct things *t)
{
	TRY(end_exec(t));
	return end_graph(t);
}

static CUresult make_plain_exec(struct things *t)
{
	TRY(make_plain(t));
	return instantiate(t);
}

static CUresult make_memory_exec(struct things *t)
{
	TRY(make_memory(t));
	return instantiate(t);
}

static CUresult run(struct things *t)
{
	return cu.cuGraphLaunch(t->exec, t->stream);
}

static CUresult run_twice(struct things *t)
{
	TRY(run(t));
	return run(t);
}

static CUresult make_memory_exec_run(struct things *t)
{
	TRY(make_memory_exec(t));
	TRY(run(t));
	return cu.cuStreamSynchronize(t->stream);
}

static CUresult upload(struct things *t)
{
	return cu.cuGraphUpload(t->exec, t->stream);
}

static CUresult make_two(struct things *t)
{
	TRY(make_plain_exec(t));
	return capture(&t->graph_too, false, false);
}

static CUresult update(struct things *t)
{
	struct graph_update info;

	return cu.cuGraphExecUpdate_v2(t->exec, t->graph_too, &info);
}

static CUresult end_two(struct things *t)
{
	TRY(cu.cuGraphDestroy(t->graph_too));
	return end_both(t);
}

static CUresult trim(struct things *t)
{
	(void)t;
	return cu.cuDeviceGraphMemTrim(0);
}

/* Two graphs that use memory, in two streams: they share it only one after the other. */
static CUresult make_two_memory(struct things *t)
{
	TRY(make_memory_exec(t));
	TRY(capture(&t->graph_too, true, false));
	TRY(cu.cuGraphInstantiateWithFlags(&t->exec_too, t->graph_too, 0));
	return cu.cuStreamCreate(&t->own_stream, STREAM_NON_BLOCKING);
}

static CUresult run_in_two(struct things *t)
{
	for (int i = 0; i < 3; i++) {
		TRY(cu.cuGraphLaunch(t->exec, i % 2 == 0 ? t->stream : t->own_stream));
		TRY(cu.cuGraphLaunch(t->exec_too, i % 2 == 0 ? t->own_stream : t->stream));
	}
	return CUDA_SUCCESS;
}

static CUresult end_two_memory(struct things *t)
{
	TRY(cu.cuGraphExecDestroy(t->exec_too));
	TRY(cu.cuStreamDestroy_v2(t->own_stream));
	return end_two(t);
}

/* The two have shared their memory in one stream before. */
static CUresult make_two_memory_run(struct things *t)
{
	TRY(make_two_memory(t));
	TRY(cu.cuGraphLaunch(t->exec, t->own_stream));
	TRY(cu.cuGraphLaunch(t->exec_too, t->own_stream));
	return cu.cuStreamSynchronize(t->own_stream);
}

/* What the driver kept for it is the device's again. */
static CUresult make_memory_exec_trimmed(struct things *t)
{
	TRY(make_memory_exec_run(t));
	return cu.cuDeviceGraphMemTrim(0);
}

/* The graph allocates and the stream frees. */
static CUresult make_given(struct things *t)
{
	TRY(capture(&t->graph, true, true));
	t->block = captured_block;
	return instantiate(t);
}

static CUresult run_given(struct things *t)
{
	for (int i = 0; i < 3; i++) {
		TRY(run(t));
		TRY(cu.cuMemFreeAsync(t->block, t->stream));
	}
	return CUDA_SUCCESS;
}

/* Memory that outlives the graph's run, and goes with its next one. */
static CUresult make_kept(struct things *t)
{
	TRY(capture(&t->graph, true, true));
	return cu.cuGraphInstantiateWithFlags(&t->exec, t->graph, AUTO_FREE);
}

static CUresult end_destroyed(struct things *t)
{
	return end_graph(t);
}

static CUresult run_and_end(struct things *t)
{
	TRY(run(t));
	return end_exec(t);
}

static const struct call calls[] = {
	{"cuGraphInstantiate", &cu.cuGraphInstantiateWithFlags, make_plain, instantiate, end_both},
	{"cuGraphInstantiate, memory", &cu.cuGraphInstantiateWithFlags, make_memory, instantiate, end_both},
	{"cuGraphUpload", &cu.cuGraphUpload, make_plain_exec, upload, end_both},
	{"cuGraphUpload, memory", &cu.cuGraphUpload, make_memory_exec, upload, end_both},
	{"cuGraphLaunch", &cu.cuGraphLaunch, make_plain_exec, run, end_both},
	{"cuGraphLaunch, twice", &cu.cuGraphLaunch, make_plain_exec, run_twice, end_both},
	{"cuGraphLaunch, memory", &cu.cuGraphLaunch, make_memory_exec, run, end_both},
	{"cuGraphLaunch, memory, again", &cu.cuGraphLaunch, make_memory_exec_run, run, end_both},
	{"cuGraphLaunch, memory, twice", &cu.cuGraphLaunch, make_memory_exec, run_twice, end_both},
	{"cuGraphLaunch, memory, two streams", &cu.cuGraphLaunch, make_two_memory, run_in_two, end_two_memory},
	{"cuGraphLaunch, memory shared, two streams", &cu.cuGraphLaunch, make_two_memory_run, run_in_two, end_two_memory},
	{"cuGraphLaunch, memory trimmed", &cu.cuGraphLaunch, make_memory_exec_trimmed, run_twice, end_both},
	{"cuGraphLaunch, memory freed by the stream", &cu.cuGraphLaunch, make_given, run_given, end_both},
	{"cuGraphLaunch, memory kept, twice", &cu.cuGraphLaunch, make_kept, run_twice, end_both},
	{"cuGraphExecUpdate", &cu.cuGraphExecUpdate_v2, make_two, update, end_two},
	{"cuGraphExecDestroy", &cu.cuGraphExecDestroy, make_plain_exec, end_exec, end_graph},
	{"cuGraphExecDestroy, at work", &cu.cuGraphExecDestroy, make_memory_exec, run_and_end, end_destroyed},
	{"cuDeviceGraphMemTrim", &cu.cuDeviceGraphMemTrim, make_memory_exec_run, trim, end_both},
};

const struct calls calls_of_graphs = {"graphs", calls, sizeof(calls) / sizeof(calls[0])};

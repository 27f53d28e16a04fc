/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

static unsigned ran;

static CUresult make_stream(struct things *t)
{
	return cu.cuStreamCreate(&t->own_stream, STREAM_NON_BLOCKING);
}

static CUresult make_stream_of_old(struct things *t)
{
	return cu.cuStreamCreate(&t->own_stream, 0);
}

static CUresult end_stream(struct things *t)
{
	return cu.cuStreamDestroy_v2(t->own_stream);
}

static CUresult end_busy_stream(struct things *t)
{
	for (int i = 0; i < 4; i++)
		TRY(launch(spin, 200, t->own_stream));
	return end_stream(t);
}

static CUresult make_event(struct things *t)
{
	return cu.cuEventCreate(&t->event, 0);
}

static CUresult end_event(struct things *t)
{
	return cu.cuEventDestroy_v2(t->event);
}

static CUresult record(struct things *t)
{
	return cu.cuEventRecord(t->event, t->stream);
}

static CUresult record_and_end_event(struct things *t)
{
	TRY(record(t));
	return end_event(t);
}

static CUresult record_and_wait(struct things *t)
{
	TRY(record(t));
	return cu.cuEventSynchronize(t->event);
}

static CUresult synchronise(struct things *t)
{
	return cu.cuStreamSynchronize(t->stream);
}

static CUresult ask(struct things *t)
{
	CUresult result = cu.cuStreamQuery(t->stream);

	return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
}

static void count(void *data)
{
	(void)data;
	__atomic_add_fetch(&ran, 1, __ATOMIC_RELAXED);
}

static void count_callback(CUstream stream, CUresult status, void *data)
{
	(void)stream;
	(void)status;
	count(data);
}

static CUresult run_on_host(struct things *t)
{
	return cu.cuLaunchHostFunc(t->stream, count, NULL);
}

static CUresult call_back(struct things *t)
{
	return cu.cuStreamAddCallback(t->stream, count_callback, NULL, 0);
}

static CUresult launch_in_default(struct things *t)
{
	(void)t;
	return launch(spin, 100, NULL);
}

static CUresult capture_beside(struct things *t)
{
	TRY(cu.cuStreamBeginCapture_v2(t->stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	TRY(launch(spin, 100, t->stream));
	return cu.cuStreamEndCapture(t->stream, &t->graph);
}

static CUresult end_graph(struct things *t)
{
	return cu.cuGraphDestroy(t->graph);
}

static const struct call calls[] = {
	{"cuStreamCreate", &cu.cuStreamCreate, nothing, make_stream, end_stream},
	{"cuStreamCreate, of the old kind", &cu.cuStreamCreate, nothing, make_stream_of_old, end_stream},
	{"cuStreamDestroy", &cu.cuStreamDestroy_v2, make_stream, end_stream, nothing},
	{"cuStreamDestroy, at work", &cu.cuStreamDestroy_v2, make_stream, end_busy_stream, nothing},
	{"cuEventCreate", &cu.cuEventCreate, nothing, make_event, end_event},
	{"cuEventRecord", &cu.cuEventRecord, make_event, record, end_event},
	{"cuEventDestroy, recorded", &cu.cuEventDestroy_v2, make_event, record_and_end_event, nothing},
	{"cuEventSynchronize", &cu.cuEventSynchronize, make_event, record_and_wait, end_event},
	{"cuStreamSynchronize", &cu.cuStreamSynchronize, nothing, synchronise, nothing},
	{"cuStreamQuery", &cu.cuStreamQuery, nothing, ask, nothing},
	{"cuLaunchHostFunc", &cu.cuLaunchHostFunc, nothing, run_on_host, nothing},
	{"cuStreamAddCallback", &cu.cuStreamAddCallback, nothing, call_back, nothing},
	{"cuLaunchKernel, default stream", &cu.cuLaunchKernel, nothing, launch_in_default, nothing},
	{"cuStreamBeginCapture to EndCapture", &cu.cuStreamEndCapture, nothing, capture_beside, end_graph},
};

const struct calls calls_of_streams = {"streams", calls, sizeof(calls) / sizeof(calls[0])};

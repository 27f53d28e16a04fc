/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Capturing a stream's work into a graph, and what may not be called meanwhile. */
#include "drv.h"

#define UNSUPPORTED ((CUresult)900)
#define INVALIDATED CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
#define IMPLICIT ((CUresult)906)

enum { GLOBAL, THREAD_LOCAL, RELAXED };
enum { NONE, ACTIVE, BROKEN };

static __thread int thread_mode = GLOBAL;

CUresult sim_cuThreadExchangeStreamCaptureMode(int *mode)
{
	int old = thread_mode;

	NEED(drv_ready());
	if (mode == NULL || *mode < GLOBAL || *mode > RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

static bool forbids(const struct CUstream_st *stream)
{
	if (stream->capture == NULL || stream->capture_mode == RELAXED)
		return false;
	return pthread_equal(stream->capturer, pthread_self()) ||
	       (stream->capture_mode == GLOBAL && thread_mode == GLOBAL);
}

CUresult drv_safe(void)
{
	CUresult result = CUDA_SUCCESS;

	if (thread_mode == RELAXED)
		return CUDA_SUCCESS;
	drv_lock();
	for (CUcontext c = drv.contexts; c != NULL; c = c->next)
		for (CUstream s = c->dead ? NULL : c->streams; s != NULL; s = s->next)
			if (forbids(s)) {
				s->capture_status = BROKEN;
				result = UNSUPPORTED;
			}
	return drv_unlock(result);
}

/* Into a new graph, or into one that there is. */
static CUresult begin(CUstream handle, int mode, CUgraph graph)
{
	CUresult result = CUDA_SUCCESS;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (mode < GLOBAL || mode > RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	if (stream == &stream->ctx->legacy || stream->capture != NULL)
		result = UNSUPPORTED;
	else if ((stream->capture = graph != NULL ? graph : drv_graph_new()) == NULL)
		result = CUDA_ERROR_OUT_OF_MEMORY;
	if (result == CUDA_SUCCESS) {
		stream->capture_mode = mode;
		stream->capture_status = ACTIVE;
		stream->capturer = pthread_self();
	}
	return drv_unlock(result);
}

CUresult sim_cuStreamBeginCapture_v2(CUstream stream, int mode)
{
	return begin(stream, mode, NULL);
}

CUresult sim_cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode)
{
	return sim_cuStreamBeginCapture_v2(drv_ptsz(stream), mode);
}

CUresult sim_cuStreamBeginCapture(CUstream stream)
{
	return sim_cuStreamBeginCapture_v2(stream, GLOBAL);
}

CUresult sim_cuStreamBeginCapture_ptsz(CUstream stream)
{
	return sim_cuStreamBeginCapture(drv_ptsz(stream));
}

CUresult sim_cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode *after,
					 const void *edges, size_t count, int mode)
{
	(void)after, (void)edges, (void)count;
	return graph == NULL ? CUDA_ERROR_INVALID_VALUE : begin(stream, mode, graph);
}

CUresult sim_cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode *after,
					      const void *edges, size_t count, int mode)
{
	return sim_cuStreamBeginCaptureToGraph(drv_ptsz(stream), graph, after, edges, count, mode);
}

CUresult sim_cuStreamBeginRecaptureToGraph(CUstream stream, int mode, CUgraph graph, void *differs,
					   void *data)
{
	(void)differs, (void)data;
	return graph == NULL ? CUDA_ERROR_INVALID_VALUE : begin(stream, mode, graph);
}

CUresult sim_cuStreamBeginRecaptureToGraph_ptsz(CUstream stream, int mode, CUgraph graph, void *differs,
						void *data)
{
	return sim_cuStreamBeginRecaptureToGraph(drv_ptsz(stream), mode, graph, differs, data);
}

/* Contexts for graphics are not simulated. */
CUresult sim_cuStreamBeginCaptureToCig(CUstream stream, void *capture)
{
	(void)capture;
	NEED(drv_stream(stream, &stream));
	return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuStreamBeginCaptureToCig_ptsz(CUstream stream, void *capture)
{
	return sim_cuStreamBeginCaptureToCig(drv_ptsz(stream), capture);
}

CUresult sim_cuStreamEndCaptureToCig(CUstream stream)
{
	NEED(drv_stream(stream, &stream));
	return CUDA_ERROR_INVALID_CONTEXT;
}

CUresult sim_cuStreamEndCaptureToCig_ptsz(CUstream stream)
{
	return sim_cuStreamEndCaptureToCig(drv_ptsz(stream));
}

CUresult sim_cuStreamBeginUnheard(CUstream stream)
{
	return begin(stream, GLOBAL, NULL);
}

CUresult sim_cuStreamEndCapture(CUstream handle, CUgraph *graph)
{
	CUgraph captured;
	CUstream stream;
	bool broken;

	NEED(drv_stream(handle, &stream));
	if (graph == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	captured = stream->capture;
	broken = stream->capture_status == BROKEN;
	stream->capture = NULL;
	stream->capture_status = NONE;
	drv_unlock(CUDA_SUCCESS);
	*graph = broken ? NULL : captured;
	if (broken)
		sim_cuGraphDestroy(captured);
	return captured == NULL ? CUDA_ERROR_INVALID_VALUE : broken ? INVALIDATED : CUDA_SUCCESS;
}

CUresult sim_cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
	return sim_cuStreamEndCapture(drv_ptsz(stream), graph);
}

/* The legacy stream would have to wait for a blocking stream that is captured. */
static bool is_waited_for(CUcontext ctx)
{
	for (CUstream s = ctx->streams; s != NULL; s = s->next)
		if (s->capture != NULL && !(s->flags & SIM_STREAM_NON_BLOCKING))
			return true;
	return false;
}

CUresult sim_cuStreamIsCapturing(CUstream handle, int *status)
{
	CUresult result = CUDA_SUCCESS;
	CUstream stream;

	drv_asked(SIM_ASKED_CAPTURING);
	NEED(drv_stream(handle, &stream));
	if (status == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	if (stream == &stream->ctx->legacy && is_waited_for(stream->ctx))
		result = IMPLICIT;
	else
		*status = stream->capture_status;
	return drv_unlock(result);
}

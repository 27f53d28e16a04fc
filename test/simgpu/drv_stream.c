/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Streams. A stream is the time at which its work will be done; since a device does one thing after the
 * other (gputime.c), nothing needs a thread. */
#define _GNU_SOURCE
#include "drv_control.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

void drv_sleep_until(uint64_t ns)
{
	struct timespec at = { .tv_sec = (time_t)(ns / 1000000000ull),
			       .tv_nsec = (long)(ns % 1000000000ull) };

	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
		;
}

/* The calling thread's own default stream. With the lock held. */
static CUstream per_thread(CUcontext ctx)
{
	CUstream stream = ctx->streams;

	while (stream != NULL && !(stream->per_thread && pthread_equal(stream->owner, pthread_self())))
		stream = stream->next;
	if (stream == NULL && (stream = calloc(1, sizeof(*stream))) != NULL) {
		stream->ctx = ctx;
		stream->per_thread = true;
		stream->owner = pthread_self();
		stream->next = ctx->streams;
		ctx->streams = stream;
	}
	return stream;
}

CUresult drv_stream(CUstream handle, CUstream *stream)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	*stream = NULL;
	if (handle == NULL || handle == CU_STREAM_LEGACY) {
		*stream = &ctx->legacy;
		return CUDA_SUCCESS;
	}
	drv_lock();
	if (handle == CU_STREAM_PER_THREAD)
		*stream = per_thread(ctx);
	for (CUcontext c = drv.contexts; c != NULL && *stream == NULL; c = c->next)
		for (CUstream s = c->dead ? NULL : c->streams; s != NULL; s = s->next)
			if (s == handle)
				*stream = s;
	return drv_unlock(*stream != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE);
}

void drv_stream_free_all(CUcontext ctx)
{
	while (ctx->streams != NULL) {
		CUstream stream = ctx->streams;

		ctx->streams = stream->next;
		drv_deferred_drop(stream);
		free(stream);
	}
	drv_deferred_drop(&ctx->legacy);
	drv_events_free_all(ctx);
}

static uint64_t later(uint64_t ready_ns, CUstream stream)
{
	if (ready_ns == SIM_NEVER_NS || drv_deferred(stream))
		return SIM_NEVER_NS;
	return stream->ready_ns > ready_ns ? stream->ready_ns : ready_ns;
}

/* The legacy default stream waits for all blocking streams of its context. */
uint64_t drv_stream_ready_ns(CUstream stream)
{
	uint64_t ready = later(0, stream);

	if (stream == &stream->ctx->legacy) {
		for (CUstream s = stream->ctx->streams; s != NULL; s = s->next)
			if (!(s->flags & SIM_STREAM_NON_BLOCKING))
				ready = later(ready, s);
	} else if (!(stream->flags & SIM_STREAM_NON_BLOCKING))
		ready = later(ready, &stream->ctx->legacy);
	return ready;
}

void drv_stream_book(CUstream stream, uint64_t from_ns, uint64_t ns)
{
	stream->ready_ns = sim_time_book(stream->ctx->device, from_ns, ns);
	stream->end_ns[stream->head] = stream->ready_ns;
	stream->head = (stream->head + 1) % SIM_QUEUE_DEPTH;
}

void drv_sleep_unlocked(uint64_t until_ns)
{
	if (until_ns == SIM_NEVER_NS && drv_controlled()) {
		drv_control_wait();
		return;
	}
	drv_unlock(CUDA_SUCCESS);
	drv_sleep_until(until_ns != SIM_NEVER_NS ? until_ns : sim_now_ns() + 10000);
	drv_lock();
}

CUresult drv_enqueue(CUstream handle, uint64_t ns)
{
	CUresult result;
	uint64_t full_ns;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	drv_lock();
	if (stream->capture != NULL) /* it does not run now */
		return drv_unlock(CUDA_SUCCESS);
	while (stream->queued - stream->resumed >= SIM_QUEUE_DEPTH && drv_deferred(stream))
		drv_sleep_unlocked(SIM_NEVER_NS);
	full_ns = stream->end_ns[stream->head];
	if (full_ns > sim_now_ns()) /* the queue is full */
		drv_sleep_unlocked(full_ns);
	if (!drv_deferred_work(stream, ns, &result))
		drv_stream_book(stream, drv_stream_ready_ns(stream), ns);
	return drv_unlock(result);
}

CUresult drv_wait(CUstream handle)
{
	CUstream stream;
	uint64_t ready;
	int device;

	NEED(drv_stream(handle, &stream));
	drv_lock();
	while ((ready = drv_stream_ready_ns(stream)) == SIM_NEVER_NS)
		drv_sleep_unlocked(SIM_NEVER_NS);
	device = stream->ctx->device;
	drv_unlock(CUDA_SUCCESS);
	drv_sleep_until(ready);
	drv_pools_trim(device);
	return CUDA_SUCCESS;
}

static uint64_t context_ready_ns(CUcontext ctx)
{
	uint64_t ready = later(0, &ctx->legacy);

	for (CUstream s = ctx->streams; s != NULL; s = s->next)
		ready = later(ready, s);
	return ready;
}

static CUresult synchronize(CUcontext ctx)
{
	uint64_t ready;

	drv_lock();
	while ((ready = context_ready_ns(ctx)) == SIM_NEVER_NS)
		drv_sleep_unlocked(SIM_NEVER_NS);
	drv_unlock(CUDA_SUCCESS);
	drv_sleep_until(ready);
	drv_pools_trim(ctx->device);
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxSynchronize(void)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	return synchronize(ctx);
}

CUresult sim_cuCtxSynchronize_v2(CUcontext context)
{
	CUcontext ctx;

	if (context == NULL)
		return sim_cuCtxSynchronize();
	NEED(drv_current(&ctx));
	drv_lock();
	NEED(drv_unlock(drv_context(context)));
	return synchronize(context);
}

CUresult sim_cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	CUstream stream;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (out == NULL || flags > SIM_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	stream = calloc(1, sizeof(*stream));
	if (stream == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stream->ctx = ctx;
	stream->flags = flags;
	stream->priority = priority > 0 ? 0 : priority < -5 ? -5 : priority;
	drv_lock();
	stream->next = ctx->streams;
	ctx->streams = stream;
	*out = stream;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuStreamCreate(CUstream *out, unsigned int flags)
{
	return sim_cuStreamCreateWithPriority(out, flags, 0);
}

/* Work that is queued goes on; the handle is gone at once, unless the work lies behind a wait. */
CUresult sim_cuStreamDestroy_v2(CUstream handle)
{
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (stream == &stream->ctx->legacy || stream->per_thread)
		return CUDA_ERROR_INVALID_HANDLE;
	drv_lock();
	while (drv_deferred(stream))
		drv_sleep_unlocked(SIM_NEVER_NS);
	drv_deferred_drop(stream);
	if (stream->ready_ns > stream->ctx->legacy.ready_ns)
		stream->ctx->legacy.ready_ns = stream->ready_ns;
	for (CUstream *at = &stream->ctx->streams; *at != NULL; at = &(*at)->next)
		if (*at == stream) {
			*at = stream->next;
			free(stream);
			break;
		}
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuStreamDestroy(CUstream stream)
{
	return sim_cuStreamDestroy_v2(stream);
}

CUresult sim_cuStreamSynchronize(CUstream stream)
{
	return drv_wait(stream);
}

CUresult sim_cuStreamQuery(CUstream handle)
{
	CUstream stream;
	uint64_t ready;

	NEED(drv_stream(handle, &stream));
	drv_lock();
	ready = drv_stream_ready_ns(stream);
	return drv_unlock(ready <= sim_now_ns() ? CUDA_SUCCESS : (CUresult)SIM_CUDA_ERROR_NOT_READY);
}

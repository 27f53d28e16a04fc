/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams.h"

#include "atomics.h"
#include "futex.h"
#include "groups.h"
#include "symbols.h"

#include <pthread.h>
#include <sched.h>

#define DESTROY_WAIT_NS 100000000u
/* Of all groups of a stream. */
#define EVENTS (4 * VGPU_GROUPS)

static uint64_t thread_of(CUstream handle)
{
	return handle == CU_STREAM_PER_THREAD ? (uint64_t)pthread_self() : 0;
}

static bool is(const struct vgpu_stream *stream, CUcontext context, CUstream handle, uint64_t thread)
{
	return GET(stream->state) == VGPU_STREAM_LIVE && GET(stream->handle) == handle && GET(stream->context) == context &&
	       GET(stream->thread) == thread;
}

/* With the stream's mutex held and nobody using its events: an unused place again. What was in
 * flight is not counted; its share was taken when it was launched. left: its events. */
static void clear(struct vgpu_engine *engine, struct vgpu_stream *stream, CUevent left[EVENTS])
{
	vgpu_groups_collect(stream, 0);
	for (; stream->tail != stream->head; stream->tail++)
		vgpu_groups_leave(engine, vgpu_groups_oldest(stream));
	for (uint32_t g = 0; g < VGPU_GROUPS; g++) {
		left[4 * g] = stream->group[g].marker;
		left[4 * g + 1] = stream->group[g].front;
		left[4 * g + 2] = stream->group[g].begin;
		left[4 * g + 3] = stream->group[g].end;
		stream->group[g] = (struct vgpu_group){0};
	}
	stream->head = stream->tail = 0;
	stream->meter = (struct vgpu_meter){0};
	/* The next one in this place has not been made to wait. */
	SET(stream->plugged, 0);
	stream->batch = stream->batch_ns = 0;
	SET(stream->handle, NULL);
	__atomic_store_n(&stream->state, VGPU_STREAM_UNUSED, __ATOMIC_RELEASE);
}

/* Gives up the place of a stream of the same context that has nothing in flight: its markers are of
 * use to the next one. */
static bool leave_idle(struct vgpu_stream *stream, CUcontext context)
{
	bool left = false;

	vgpu_mutex_lock(&stream->mutex);
	if (GET(stream->state) == VGPU_STREAM_LIVE && GET(stream->context) == context && stream->head == stream->tail &&
	    stream->users == 0) {
		stream->meter = (struct vgpu_meter){0};
		SET(stream->handle, NULL);
		SET(stream->state, VGPU_STREAM_UNUSED);
		left = true;
	}
	vgpu_mutex_unlock(&stream->mutex);
	return left;
}

struct vgpu_stream *vgpu_streams_find(struct vgpu_engine *engine, CUcontext context, CUstream handle)
{
	uint64_t thread = thread_of(handle);
	struct vgpu_stream *found = NULL, *free_place = NULL;
	uint32_t high = __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE);

	for (uint32_t s = 0; s < high && found == NULL; s++) {
		if (is(&engine->stream[s], context, handle, thread))
			found = &engine->stream[s];
	}
	if (found != NULL)
		return found;
	vgpu_mutex_lock(&engine->streams_mutex);
	for (uint32_t s = 0; s < VGPU_STREAMS && found == NULL; s++) {
		struct vgpu_stream *stream = &engine->stream[s];

		if (is(stream, context, handle, thread))
			found = stream;
		else if (free_place == NULL && __atomic_load_n(&stream->state, __ATOMIC_ACQUIRE) == VGPU_STREAM_UNUSED)
			free_place = stream;
	}
	for (uint32_t s = 0; s < VGPU_STREAMS && found == NULL && free_place == NULL; s++) {
		if (leave_idle(&engine->stream[s], context))
			free_place = &engine->stream[s];
	}
	if (found == NULL && free_place != NULL) {
		uint32_t s = (uint32_t)(free_place - engine->stream);

		SET(free_place->context, context);
		SET(free_place->handle, handle);
		SET(free_place->thread, thread);
		vgpu_mutex_lock(&free_place->mutex);
		free_place->beside = true; /* nobody has seen yet what it waits for */
		vgpu_mutex_unlock(&free_place->mutex);
		__atomic_store_n(&free_place->state, VGPU_STREAM_LIVE, __ATOMIC_RELEASE);
		if (s >= engine->streams_high)
			__atomic_store_n(&engine->streams_high, s + 1, __ATOMIC_RELEASE);
		found = free_place;
	}
	vgpu_mutex_unlock(&engine->streams_mutex);
	return found;
}

void vgpu_streams_beside(struct vgpu_process *p, CUcontext context, CUstream handle)
{
	uint64_t thread = thread_of(handle);

	for (uint32_t d = 0; d < VGPU_MAX_DEVICES && d < GET(vgpu_pages.limits->device_count); d++) {
		for (uint32_t s = 0; s < __atomic_load_n(&p->engine[d].streams_high, __ATOMIC_ACQUIRE); s++) {
			struct vgpu_stream *stream = &p->engine[d].stream[s];

			if (is(stream, context, handle, thread))
				vgpu_groups_beside(stream, handle);
		}
	}
}

static void gone(struct vgpu_engine *engine, struct vgpu_stream *stream, bool destroy)
{
	vgpu_fn_cuEventDestroy_v2 *destroy_event = VGPU_REAL(cuEventDestroy_v2);
	CUevent left[EVENTS] = {0};
	uint64_t since = vgpu_now_ns();

	vgpu_mutex_lock(&stream->mutex);
	SET(stream->state, VGPU_STREAM_DEAD);
	/* Who uses its events is in a call that does not wait. */
	while (stream->users != 0 && vgpu_now_ns() - since < DESTROY_WAIT_NS) {
		vgpu_mutex_unlock(&stream->mutex);
		sched_yield();
		vgpu_mutex_lock(&stream->mutex);
	}
	if (stream->users == 0)
		clear(engine, stream, left);
	vgpu_mutex_unlock(&stream->mutex);
	for (uint32_t i = 0; destroy && destroy_event != NULL && i < EVENTS; i++) {
		if (left[i] != NULL)
			destroy_event(left[i]);
	}
}

void vgpu_streams_gone(struct vgpu_process *p, CUstream handle)
{
	if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
		return;
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++) {
		for (uint32_t s = 0; s < GET(p->engine[d].streams_high); s++) {
			struct vgpu_stream *stream = &p->engine[d].stream[s];

			if (GET(stream->state) == VGPU_STREAM_LIVE && GET(stream->handle) == handle)
				gone(&p->engine[d], stream, true);
		}
	}
}

void vgpu_streams_context_gone(struct vgpu_process *p, CUcontext context)
{
	SET(p->keeper_context, NULL);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++) {
		for (uint32_t s = 0; s < GET(p->engine[d].streams_high); s++) {
			struct vgpu_stream *stream = &p->engine[d].stream[s];

			if (GET(stream->state) == VGPU_STREAM_LIVE && GET(stream->context) == context)
				gone(&p->engine[d], stream, false); /* its events end with it */
		}
	}
}

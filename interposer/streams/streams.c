/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams/streams.h"

#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "streams/groups.h"
#include "streams/own.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>

#define DESTROY_WAIT_NS 100000000u
/* Of all groups of a stream. */
#define EVENTS (4 * VGPU_GROUPS)

static uint64_t thread_of(CUstream handle)
{
	return handle == CU_STREAM_PER_THREAD ? (uint64_t)pthread_self() : 0;
}

static bool is_place_of(const struct vgpu_stream *stream, CUcontext context, CUstream handle, uint64_t thread)
{
	return __atomic_load_n(&stream->state, __ATOMIC_ACQUIRE) == VGPU_STREAM_LIVE &&
	       GET(stream->handle) == handle && GET(stream->context) == context &&
	       GET(stream->thread) == thread;
}

/* With the stream's mutex held and nobody using its events: an unused place again. What was in
 * flight is not counted; its share was taken when it was launched. left: its events. */
static void clear(struct vgpu_engine *engine, struct vgpu_stream *stream, CUevent left[EVENTS])
{
	vgpu_groups_collect(engine, stream, 0);
	for (uint32_t g = stream->tail; g != stream->head; g++)
		vgpu_groups_leave(engine, &stream->group[g % VGPU_GROUPS]);
	for (uint32_t g = 0; g < VGPU_GROUPS; g++) {
		left[4 * g] = stream->group[g].marker;
		left[4 * g + 1] = stream->group[g].front;
		left[4 * g + 2] = stream->group[g].begin;
		left[4 * g + 3] = stream->group[g].end;
		stream->group[g] = (struct vgpu_group){0};
	}
	SET(stream->head, 0);
	SET(stream->tail, 0);
	SET(stream->handle, NULL);
	__atomic_store_n(&stream->state, VGPU_STREAM_UNUSED, __ATOMIC_RELEASE);
}

/* Gives up the place of a stream that has nothing in flight. Its markers are of use to the next one of the
 * same context; those of another one end with that. */
static bool leave_idle(struct vgpu_engine *engine, struct vgpu_stream *stream, CUcontext context)
{
	CUevent left[EVENTS];
	bool idle;

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	idle = GET(stream->state) == VGPU_STREAM_LIVE && stream->head == stream->tail && stream->users == 0;
	if (idle && GET(stream->context) != context)
		clear(engine, stream, left);
	if (idle) {
		SET(stream->handle, NULL);
		__atomic_store_n(&stream->state, VGPU_STREAM_UNUSED, __ATOMIC_RELEASE);
	}
	vgpu_mutex_unlock(&stream->mutex);
	return idle;
}

/* Where a stream was found last, or another one with the same place here. */
static uint16_t *seen_at(struct vgpu_engine *engine, CUstream handle, uint64_t thread)
{
	return &engine->streams_seen[(((uint64_t)(uintptr_t)handle ^ thread) * 0x9e3779b97f4a7c15ull >> 32) %
				     VGPU_STREAMS];
}

static struct vgpu_stream *look_up(struct vgpu_engine *engine, CUcontext context, CUstream handle,
				   uint64_t thread)
{
	uint32_t high = __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE);

	for (uint32_t s = 0; s < high; s++) {
		if (is_place_of(&engine->stream[s], context, handle, thread))
			return &engine->stream[s];
	}
	return NULL;
}

static struct vgpu_stream *unused_place(struct vgpu_engine *engine)
{
	for (uint32_t s = 0; s < VGPU_STREAMS; s++) {
		if (__atomic_load_n(&engine->stream[s].state, __ATOMIC_ACQUIRE) == VGPU_STREAM_UNUSED)
			return &engine->stream[s];
	}
	return NULL;
}

static struct vgpu_stream *idle_place(struct vgpu_engine *engine, CUcontext context, bool same_context)
{
	for (uint32_t s = 0; s < engine->streams_high; s++) {
		struct vgpu_stream *stream = &engine->stream[s];

		if ((GET(stream->context) == context || !same_context) && leave_idle(engine, stream, context))
			return stream;
	}
	return NULL;
}

static bool has_groups(struct vgpu_stream *stream)
{
	if (stream->group == NULL) {
		stream->group = mmap(NULL, VGPU_GROUPS * sizeof(*stream->group), PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		stream->group = stream->group == MAP_FAILED ? NULL : stream->group;
	}
	return stream->group != NULL;
}

/* What is known of a stream goes with its place, so one is given up only when there is no other. */
static struct vgpu_stream *place_for(struct vgpu_engine *engine, CUcontext context)
{
	struct vgpu_stream *place = unused_place(engine);

	if (place != NULL && has_groups(place))
		return place;
	place = idle_place(engine, context, true);
	return place != NULL ? place : idle_place(engine, context, false);
}

static void occupy(struct vgpu_engine *engine, struct vgpu_stream *place, CUcontext context, CUstream handle,
		   uint64_t thread)
{
	uint32_t s = (uint32_t)(place - engine->stream);

	SET(place->context, context);
	SET(place->handle, handle);
	SET(place->thread, thread);
	vgpu_mutex_lock(&place->mutex, VGPU_RANK_STREAM);
	place->meter = (struct vgpu_meter){0};
	place->held_ns = place->drained_ns = place->batch = place->batch_ns = 0;
	SET(place->waits_for_batch, 0);
	place->beside = true; /* nobody has seen yet what it waits for */
	vgpu_mutex_unlock(&place->mutex);
	__atomic_store_n(&place->state, VGPU_STREAM_LIVE, __ATOMIC_RELEASE);
	if (s >= engine->streams_high)
		__atomic_store_n(&engine->streams_high, s + 1, __ATOMIC_RELEASE);
}

struct vgpu_stream *vgpu_streams_find(struct vgpu_engine *engine, CUcontext context, CUstream handle)
{
	uint64_t thread = thread_of(handle);
	uint16_t *seen = seen_at(engine, handle, thread);
	struct vgpu_stream *found = &engine->stream[GET(*seen)];

	if (is_place_of(found, context, handle, thread))
		return found;
	found = look_up(engine, context, handle, thread);
	if (found != NULL) {
		SET(*seen, (uint16_t)(found - engine->stream));
		return found;
	}
	vgpu_mutex_lock(&engine->streams_mutex, VGPU_RANK_STREAMS);
	found = look_up(engine, context, handle, thread);
	if (found == NULL) {
		found = place_for(engine, context);
		if (found != NULL)
			occupy(engine, found, context, handle, thread);
	}
	vgpu_mutex_unlock(&engine->streams_mutex);
	return found;
}

void vgpu_streams_beside(struct vgpu_process *p, CUcontext context, CUstream handle)
{
	uint64_t thread = thread_of(handle);

	for (uint32_t d = 0; d < VGPU_MAX_DEVICES && d < GET(vgpu_pages.limits->device_count); d++) {
		struct vgpu_engine *engine = vgpu_engine(p, d);

		for (uint32_t s = 0; s < __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE); s++) {
			struct vgpu_stream *stream = &engine->stream[s];

			if (is_place_of(stream, context, handle, thread))
				vgpu_groups_beside(engine, stream, handle);
		}
	}
}

static void gone(struct vgpu_engine *engine, struct vgpu_stream *stream, bool destroy)
{
	vgpu_fn_cuEventDestroy_v2 *destroy_event = VGPU_REAL(cuEventDestroy_v2);
	CUevent left[EVENTS] = {0};
	uint64_t since = vgpu_now_ns();

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	SET(stream->state, VGPU_STREAM_DEAD);
	/* Who uses its events is in a call that does not wait. */
	while (stream->users != 0 && vgpu_now_ns() - since < DESTROY_WAIT_NS) {
		vgpu_mutex_unlock(&stream->mutex);
		sched_yield();
		vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
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
		struct vgpu_engine *engine = vgpu_engine(p, d);

		for (uint32_t s = 0; s < GET(engine->streams_high); s++) {
			struct vgpu_stream *stream = &engine->stream[s];

			if (GET(stream->state) == VGPU_STREAM_LIVE && GET(stream->handle) == handle)
				gone(engine, stream, true);
		}
	}
}

void vgpu_streams_context_gone(struct vgpu_process *p, CUcontext context)
{
	SET(vgpu_streams(p)->poller_context, NULL);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++) {
		struct vgpu_engine *engine = vgpu_engine(p, d);

		for (uint32_t s = 0; s < GET(engine->streams_high); s++) {
			struct vgpu_stream *stream = &engine->stream[s];

			if (GET(stream->state) == VGPU_STREAM_LIVE && GET(stream->context) == context)
				gone(engine, stream, false); /* its events end with it */
		}
	}
}

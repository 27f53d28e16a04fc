/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams.h"

#include "capture.h"
#include "futex.h"
#include "symbols.h"

#include <pthread.h>
#include <sched.h>

/* A group is closed once this much is expected of it: how finely completion is seen. */
#define GROUP_NS 200000u
#define GROUP_LAUNCHES 256u
/* Kernels shorter than this share a marker, so many of them. */
#define SHORT_NS 20000u
#define UNMARKED 8u
/* What a kernel takes less behind another one than alone (H200). */
#define PREPARED_NS 240u
/* Work that takes so much longer than expected stops what comes behind it. */
#define STALL_NS 10000000u
#define DESTROY_WAIT_NS 100000000u

#define GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)
#define SET(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)

static uint64_t thread_of(CUstream handle)
{
	return handle == CU_STREAM_PER_THREAD ? (uint64_t)pthread_self() : 0;
}

static bool is(const struct vgpu_stream *stream, CUcontext context, CUstream handle, uint64_t thread)
{
	return GET(stream->state) == VGPU_STREAM_LIVE && GET(stream->handle) == handle && GET(stream->context) == context &&
	       GET(stream->thread) == thread;
}

static struct vgpu_group *oldest(struct vgpu_stream *stream)
{
	return &stream->group[stream->tail % VGPU_GROUPS];
}

/* What is said of a group as long as it is in flight. */
static void leave(struct vgpu_engine *engine, const struct vgpu_group *group)
{
	if (group->expected_ns == VGPU_UNKNOWN_NS)
		__atomic_fetch_sub(&engine->unknown, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&engine->expected_ns, group->reserved_ns, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&engine->in_flight, 1, __ATOMIC_RELAXED);
}

/* With the stream's mutex held and nobody using its events: an unused place again. What was in
 * flight is not counted; its share was taken when it was launched. left: its events. */
static void clear(struct vgpu_engine *engine, struct vgpu_stream *stream, CUevent left[2 * VGPU_GROUPS])
{
	for (; stream->tail != stream->head; stream->tail++)
		leave(engine, oldest(stream));
	for (uint32_t g = 0; g < VGPU_GROUPS; g++) {
		left[2 * g] = stream->group[g].marker;
		left[2 * g + 1] = stream->group[g].front;
		stream->group[g] = (struct vgpu_group){0};
	}
	stream->head = stream->tail = 0;
	stream->meter = (struct vgpu_meter){0};
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
		__atomic_store_n(&free_place->state, VGPU_STREAM_LIVE, __ATOMIC_RELEASE);
		if (s >= engine->streams_high)
			__atomic_store_n(&engine->streams_high, s + 1, __ATOMIC_RELEASE);
		found = free_place;
	}
	vgpu_mutex_unlock(&engine->streams_mutex);
	return found;
}

/* With the mutex held: the group to add a launch to, NULL when another one must be begun. */
static struct vgpu_group *open_group(struct vgpu_stream *stream, uint64_t expected_ns)
{
	struct vgpu_group *last = &stream->group[(stream->head - 1) % VGPU_GROUPS];

	if (stream->head == stream->tail)
		return NULL;
	/* Out of places: they all go into the last one. */
	if (stream->head - stream->tail >= VGPU_GROUPS - 1)
		return last;
	return last->closed || last->expected_ns == VGPU_UNKNOWN_NS || expected_ns == VGPU_UNKNOWN_NS ? NULL : last;
}

static void add(struct vgpu_engine *engine, struct vgpu_group *group, uint64_t key, uint64_t expected_ns, uint64_t reserved_ns)
{
	if (expected_ns == VGPU_UNKNOWN_NS && group->expected_ns != VGPU_UNKNOWN_NS)
		__atomic_fetch_add(&engine->unknown, 1, __ATOMIC_RELAXED);
	group->launches++;
	group->inside++;
	group->only_key = group->launches == 1 ? key : 0;
	group->expected_ns = expected_ns == VGPU_UNKNOWN_NS || group->expected_ns == VGPU_UNKNOWN_NS
				     ? VGPU_UNKNOWN_NS : group->expected_ns + expected_ns;
	group->reserved_ns += reserved_ns;
	group->closed = group->closed || group->launches >= GROUP_LAUNCHES || group->expected_ns >= GROUP_NS;
	__atomic_fetch_add(&engine->expected_ns, reserved_ns, __ATOMIC_RELAXED);
}

struct vgpu_group *vgpu_streams_begin(struct vgpu_engine *engine, struct vgpu_stream *stream, uint64_t key,
				      uint64_t expected_ns, uint64_t reserved_ns, bool askable, bool *mark, bool *front)
{
	vgpu_fn_cuEventCreate *create = VGPU_REAL(cuEventCreate);
	struct vgpu_group *group;
	CUevent spare = NULL;

	for (;;) {
		vgpu_mutex_lock(&stream->mutex);
		*front = stream->beside;
		group = *front && stream->head - stream->tail < VGPU_GROUPS - 1 ? NULL : open_group(stream, expected_ns);
		if (group == NULL) {
			group = &stream->group[stream->head % VGPU_GROUPS];
			if (group->marker == NULL && spare == NULL) {
				vgpu_mutex_unlock(&stream->mutex);
				if (create == NULL || create(&spare, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
					return NULL;
				continue;
			}
			*group = (struct vgpu_group){.marker = group->marker != NULL ? group->marker : spare, .front = group->front};
			stream->beside = false;
			spare = group->marker == spare ? NULL : spare;
			stream->head++;
			if (__atomic_fetch_add(&engine->in_flight, 1, __ATOMIC_RELAXED) == 0)
				SET(engine->progress_ns, vgpu_now_ns());
		}
		add(engine, group, key, expected_ns, reserved_ns);
		*front = *front && group->launches == 1;
		group->unmarked++;
		*mark = !askable || group->closed || expected_ns >= SHORT_NS || group->unmarked >= UNMARKED;
		vgpu_mutex_unlock(&stream->mutex);
		break;
	}
	if (spare != NULL) {
		vgpu_fn_cuEventDestroy_v2 *destroy = VGPU_REAL(cuEventDestroy_v2);

		if (destroy != NULL)
			destroy(spare);
	}
	return group;
}

void vgpu_streams_front(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group)
{
	vgpu_fn_cuEventCreate *create = VGPU_REAL(cuEventCreate);
	vgpu_fn_cuEventRecord *record = VGPU_REAL(cuEventRecord);
	CUevent event = group->front;

	if (record == NULL || (event == NULL && (create == NULL || create(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)))
		return;
	if (record(event, handle) != CUDA_SUCCESS)
		return;
	vgpu_mutex_lock(&stream->mutex);
	group->front = event;
	group->fronted = true;
	vgpu_mutex_unlock(&stream->mutex);
}

void vgpu_streams_beside(struct vgpu_process *p, CUcontext context, CUstream handle)
{
	uint64_t thread = thread_of(handle);

	for (uint32_t d = 0; d < VGPU_MAX_DEVICES && d < GET(vgpu_pages.limits->device_count); d++) {
		for (uint32_t s = 0; s < __atomic_load_n(&p->engine[d].streams_high, __ATOMIC_ACQUIRE); s++) {
			struct vgpu_stream *stream = &p->engine[d].stream[s];

			if (!is(stream, context, handle, thread))
				continue;
			vgpu_mutex_lock(&stream->mutex);
			stream->beside = true;
			vgpu_mutex_unlock(&stream->mutex);
		}
	}
}

void vgpu_streams_end(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group, bool launched, bool mark,
		      uint64_t expected_ns)
{
	vgpu_fn_cuEventRecord *record = VGPU_REAL(cuEventRecord);
	uint64_t now;

	mark = mark && launched && record != NULL && record(group->marker, handle) == CUDA_SUCCESS;
	now = vgpu_now_ns();
	vgpu_mutex_lock(&stream->mutex);
	group->inside--;
	if (mark) {
		group->marked = true;
		group->unmarked = group->inside;
	}
	if (group->first_ns == 0)
		group->first_ns = now;
	group->last_ns = now;
	if (expected_ns != VGPU_UNKNOWN_NS) {
		/* Behind another one a kernel is prepared while that one runs. */
		if (stream->drained_ns > now + VGPU_LAUNCH_NS && expected_ns > 2 * PREPARED_NS && group->expected_ns != VGPU_UNKNOWN_NS &&
		    group->expected_ns > expected_ns)
			group->expected_ns -= PREPARED_NS;
		stream->drained_ns = (stream->drained_ns > now + VGPU_LAUNCH_NS ? stream->drained_ns : now + VGPU_LAUNCH_NS) + expected_ns;
	}
	vgpu_mutex_unlock(&stream->mutex);
}

bool vgpu_streams_idle(struct vgpu_stream *stream)
{
	bool idle;

	vgpu_mutex_lock(&stream->mutex);
	idle = stream->head == stream->tail;
	vgpu_mutex_unlock(&stream->mutex);
	return idle;
}

bool vgpu_streams_drained(struct vgpu_stream *stream, CUstream handle)
{
	vgpu_fn_cuEventQuery *query = VGPU_REAL(cuEventQuery);
	vgpu_fn_cuStreamQuery *query_stream = VGPU_REAL(cuStreamQuery);
	struct vgpu_group *last;
	CUevent marker = NULL;
	bool idle, unmarked;

	vgpu_mutex_lock(&stream->mutex);
	last = &stream->group[(stream->head - 1) % VGPU_GROUPS];
	idle = stream->head == stream->tail;
	unmarked = last->unmarked != 0 || !last->marked;
	marker = last->marker;
	vgpu_mutex_unlock(&stream->mutex);
	if (idle)
		return true;
	if (unmarked)
		return query_stream != NULL && query_stream(handle) == CUDA_SUCCESS;
	return query != NULL && query(marker) == CUDA_SUCCESS;
}

/* Asks whether the marker has been reached or, where launches lie behind it, the stream's end. */
static CUresult ask(struct vgpu_process *p, CUevent marker, CUcontext context, CUstream handle, bool to_the_end)
{
	vgpu_fn_cuEventQuery *query = VGPU_REAL(cuEventQuery);
	vgpu_fn_cuStreamQuery *query_stream = VGPU_REAL(cuStreamQuery);
	vgpu_fn_cuCtxSetCurrent *set_current = VGPU_REAL(cuCtxSetCurrent);

	/* A stream is not to be asked while something is captured; then what lies behind the marker, a few
	 * short kernels, passes for what they are expected to take. */
	if (!to_the_end || query_stream == NULL || set_current == NULL || vgpu_capture_possible(p))
		return marker != NULL && query != NULL ? query(marker) : CUDA_SUCCESS;
	if (GET(p->keeper_context) != context) {
		if (set_current(context) != CUDA_SUCCESS)
			return CUDA_SUCCESS;
		SET(p->keeper_context, context);
	}
	return query_stream(handle);
}

/* Whether the stream's oldest group is done; it is taken away then. */
static bool look(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream, struct vgpu_group *out,
		 struct vgpu_busy *busy)
{
	struct vgpu_engine *engine = &p->engine[device];
	struct vgpu_group *group;
	CUresult result, front_result;
	CUcontext context;
	CUstream handle;
	CUevent marker, front;
	bool to_the_end;
	uint32_t launches;
	uint64_t asked_ns, now;
	bool done;

	vgpu_mutex_lock(&stream->mutex);
	group = oldest(stream);
	if (GET(stream->state) != VGPU_STREAM_LIVE || stream->tail == stream->head || group->inside != 0) {
		vgpu_mutex_unlock(&stream->mutex);
		return false;
	}
	launches = group->launches;
	marker = group->marked ? group->marker : NULL;
	front = group->fronted && !group->reached ? group->front : NULL;
	to_the_end = group->unmarked != 0 && stream->head - stream->tail == 1;
	context = stream->context;
	handle = stream->handle;
	stream->users++;
	vgpu_mutex_unlock(&stream->mutex);
	/* This thread may be made to wait for a core anywhere here: what is seen is between the two times. */
	asked_ns = vgpu_now_ns();
	front_result = front != NULL ? ask(p, front, context, handle, false) : CUDA_SUCCESS;
	result = front_result == CUDA_ERROR_NOT_READY ? front_result : ask(p, marker, context, handle, to_the_end);
	now = vgpu_now_ns();
	vgpu_mutex_lock(&stream->mutex);
	stream->users--;
	done = result != CUDA_ERROR_NOT_READY && stream->tail != stream->head && group == oldest(stream) &&
	       group->launches == launches && group->inside == 0;
	if (front_result == CUDA_ERROR_NOT_READY) {
		group->held_ns = asked_ns;
	} else if (front != NULL) {
		/* In the middle between two looks, on average; what was done by then as well decides for itself. */
		group->reached = true;
		if (result == CUDA_ERROR_NOT_READY)
			group->held_ns = group->held_ns != 0 ? group->held_ns + (asked_ns - group->held_ns) / 2 : 0;
	}
	if (result == CUDA_ERROR_NOT_READY && front_result != CUDA_ERROR_NOT_READY) {
		uint64_t begun = group->first_ns > stream->meter.done_ns ? group->first_ns : stream->meter.done_ns;

		group->pending_ns = asked_ns;
		if (group->expected_ns != VGPU_UNKNOWN_NS && group->expected_ns + STALL_NS + begun < asked_ns)
			SET(engine->stalled_ns, now);
	}
	if (done) {
		*busy = vgpu_meter_finish(&stream->meter, &(struct vgpu_measured){
			.first_ns = group->first_ns, .last_ns = group->last_ns, .expected_ns = group->expected_ns,
			.pending_ns = group->pending_ns, .reached_ns = now, .held_until_ns = group->held_ns > GET(engine->others_until_ns) ? group->held_ns : GET(engine->others_until_ns),
			.device_ns = GET(vgpu_pages.ledger->busy_until_ns[device])});
		SET(engine->progress_ns, busy->end_ns);
		*out = *group;
		stream->tail++;
		leave(engine, group);
	}
	vgpu_mutex_unlock(&stream->mutex);
	return done;
}

/* When the stream's oldest group was launched; UINT64_MAX: it has none. */
static uint64_t oldest_ns(struct vgpu_stream *stream)
{
	uint64_t first_ns = UINT64_MAX;

	vgpu_mutex_lock(&stream->mutex);
	if (GET(stream->state) == VGPU_STREAM_LIVE && stream->head != stream->tail)
		first_ns = oldest(stream)->first_ns;
	vgpu_mutex_unlock(&stream->mutex);
	return first_ns;
}

/* In the order in which they were launched: what streams take of the same time is told apart by when
 * each of them begins. */
void vgpu_streams_look(struct vgpu_process *p, uint32_t device, vgpu_group_done *done)
{
	struct vgpu_engine *engine = &p->engine[device];
	uint32_t high = __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE);
	uint64_t first_ns[VGPU_STREAMS];
	struct vgpu_group group;
	struct vgpu_busy busy;

	SET(engine->stalled_ns, 0);
	for (uint32_t s = 0; s < high; s++)
		first_ns[s] = oldest_ns(&engine->stream[s]);
	/* Bounded: others may add groups as fast as these are taken away. */
	for (uint32_t looks = 0; looks < high * VGPU_GROUPS; looks++) {
		uint32_t next = 0;

		for (uint32_t s = 1; s < high; s++)
			next = first_ns[s] < first_ns[next] ? s : next;
		if (first_ns[next] == UINT64_MAX)
			return;
		if (look(p, device, &engine->stream[next], &group, &busy)) {
			done(p, device, &group, &busy, vgpu_now_ns());
			first_ns[next] = oldest_ns(&engine->stream[next]);
		} else {
			first_ns[next] = UINT64_MAX;
		}
	}
}

static void gone(struct vgpu_engine *engine, struct vgpu_stream *stream, bool destroy)
{
	vgpu_fn_cuEventDestroy_v2 *destroy_event = VGPU_REAL(cuEventDestroy_v2);
	CUevent left[2 * VGPU_GROUPS] = {0};
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
	for (uint32_t i = 0; destroy && destroy_event != NULL && i < 2 * VGPU_GROUPS; i++) {
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

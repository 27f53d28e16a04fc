/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams/groups.h"

#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "streams/lease.h"

/* A group is closed once this much is expected of it: how finely completion is seen. */
#define GROUP_NS 200000u
#define GROUP_LAUNCHES 256u
/* A lease is for so much more, since nobody waits to see it done; less is not worth one. */
#define LEASE_NS 1000000u
#define LEASE_LAUNCHES 1024u
#define LEASE_LEAST_NS 10000u
static void enter(struct vgpu_engine *engine, const struct vgpu_group *group, uint64_t now_ns)
{
	if (__atomic_fetch_add(&engine->load.in_flight, 1, __ATOMIC_SEQ_CST) == 0)
		SET(engine->load.progress_ns, now_ns);
	ADD(engine->load.expected_ns, group->reserved_ns);
	ADD(engine->load.loose, group->batch == 0 ? 1u : 0u);
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

void vgpu_groups_let_go(struct vgpu_engine *engine, struct vgpu_stream *stream, struct vgpu_group *group,
			uint64_t now_ns)
{
	group->flight = group->inside == 0 ? VGPU_FLIGHT_DENSE : VGPU_FLIGHT_LOOSE;
	/* Nothing of it can have begun before. */
	group->first_ns = later(group->first_ns, now_ns);
	group->last_ns = later(group->last_ns, now_ns);
	if (group->expected_ns != VGPU_UNKNOWN_NS)
		stream->drained_ns = later(stream->drained_ns, now_ns + VGPU_LAUNCH_NS) + group->expected_ns;
	enter(engine, group, now_ns);
}

void vgpu_groups_leave(struct vgpu_engine *engine, const struct vgpu_group *group)
{
	if (group->expected_ns == VGPU_UNKNOWN_NS)
		ADD(engine->load.unknown, -1u);
	if (group->flight == VGPU_FLIGHT_HELD)
		return;
	ADD(engine->load.expected_ns, -group->reserved_ns);
	ADD(engine->load.in_flight, -1u);
	ADD(engine->load.loose, group->batch == 0 ? -1u : 0u);
}

/* With the mutex held: the group to add a launch to, NULL when another one must be begun. */
static struct vgpu_group *open_group(struct vgpu_stream *stream, uint64_t expected_ns, uint64_t batch)
{
	struct vgpu_group *last = &stream->group[(stream->head - 1) % VGPU_GROUPS];

	if (stream->head == stream->tail)
		return NULL;
	/* Out of places: they all go into the last one. */
	if (stream->head - stream->tail >= VGPU_GROUPS - 1)
		return last;
	return last->closed || last->batch != batch || last->expected_ns == VGPU_UNKNOWN_NS ||
			       expected_ns == VGPU_UNKNOWN_NS
		       ? NULL
		       : last;
}

/* What is let go together is timed on the GPU, so that it need not be seen so finely. */
static bool is_full(const struct vgpu_group *group)
{
	return group->launches >= GROUP_LAUNCHES || (group->batch == 0 && group->expected_ns >= GROUP_NS);
}

static uint64_t sum(uint64_t a_ns, uint64_t b_ns)
{
	return a_ns == VGPU_UNKNOWN_NS || b_ns == VGPU_UNKNOWN_NS ? VGPU_UNKNOWN_NS : a_ns + b_ns;
}

static void add_to_group(struct vgpu_engine *engine, struct vgpu_group *group,
			 const struct vgpu_group_more *more)
{
	if (more->expected_ns == VGPU_UNKNOWN_NS && group->expected_ns != VGPU_UNKNOWN_NS)
		__atomic_fetch_add(&engine->load.unknown, 1, __ATOMIC_RELAXED);
	group->launches++;
	group->inside++;
	group->only_key = group->launches == 1 ? more->key : 0;
	group->expected_ns = sum(group->expected_ns, more->expected_ns);
	group->unseen_ns = sum(group->unseen_ns, more->unseen_ns);
	group->reserved_ns += more->reserved_ns;
	group->closed = group->closed || is_full(group);
	if (group->flight == VGPU_FLIGHT_DENSE)
		group->flight = VGPU_FLIGHT_LOOSE;
	if (group->flight != VGPU_FLIGHT_HELD)
		ADD(engine->load.expected_ns, more->reserved_ns);
}

void vgpu_groups_collect(struct vgpu_engine *engine, struct vgpu_stream *stream, uint64_t last_ns)
{
	struct vgpu_group *last = &stream->group[(stream->head - 1) % VGPU_GROUPS];
	struct vgpu_leased leased = vgpu_lease_close(stream);
	uint64_t unused_ns =
		stream->lease_ns > leased.expected_ns ? stream->lease_ns - leased.expected_ns : 0;

	stream->lease_ns = 0;
	if (stream->head == stream->tail)
		return;
	if (unused_ns != 0 && unused_ns <= last->reserved_ns - last->paid_ns) {
		last->reserved_ns -= unused_ns;
		ADD(engine->load.expected_ns, -unused_ns);
		ADD(engine->load.credit_ns, (int64_t)unused_ns);
	}
	if (leased.launches == 0)
		return;
	last->launches += leased.launches;
	last->unmarked += leased.launches;
	last->expected_ns = sum(last->expected_ns, leased.expected_ns);
	last->unseen_ns = sum(last->unseen_ns, leased.expected_ns);
	last->only_key = 0;
	last->last_ns = later(last->last_ns, last_ns != 0 ? last_ns : vgpu_now_ns());
	last->closed = last->closed || is_full(last);
}

void vgpu_groups_give_lease(struct vgpu_engine *engine, struct vgpu_stream *stream, CUcontext context,
			    CUstream handle, struct vgpu_group *group)
{
	int64_t credit_ns = GET(engine->load.credit_ns), ns;

	if (credit_ns < (int64_t)LEASE_LEAST_NS)
		return;
	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	/* Another thread may have had one meanwhile: what it launched is in the group first. */
	vgpu_groups_collect(engine, stream, 0);
	ns = credit_ns < (int64_t)LEASE_NS ? credit_ns : (int64_t)LEASE_NS;
	if (GET(stream->state) == VGPU_STREAM_LIVE && stream->head != stream->tail && !stream->beside &&
	    group == &stream->group[(stream->head - 1) % VGPU_GROUPS] && !group->closed &&
	    group->batch == 0 && group->inside == 0 && group->reached_ns == 0 &&
	    ns >= (int64_t)LEASE_LEAST_NS) {
		/* Somebody else may have taken it just now; then it is owed. */
		ADD(engine->load.credit_ns, -ns);
		group->reserved_ns += (uint64_t)ns;
		stream->lease_ns = (uint64_t)ns;
		ADD(engine->load.expected_ns, (uint64_t)ns);
		vgpu_lease_open(engine, stream, context, handle, LEASE_LAUNCHES, (uint64_t)ns);
	}
	vgpu_mutex_unlock(&stream->mutex);
}

/* With the mutex held: the last group, if launches lie behind its marker. */
static struct vgpu_group *unmarked(struct vgpu_engine *engine, struct vgpu_stream *stream)
{
	struct vgpu_group *last = &stream->group[(stream->head - 1) % VGPU_GROUPS];

	vgpu_groups_collect(engine, stream, 0);
	return stream->head != stream->tail && last->unmarked != 0 ? last : NULL;
}

struct vgpu_group *vgpu_groups_begin(struct vgpu_engine *engine, struct vgpu_stream *stream,
				     const struct vgpu_group_more *more, struct vgpu_group_begun *begun)
{
	vgpu_fn_cuEventCreate *create = VGPU_REAL(cuEventCreate);
	struct vgpu_group *group;
	CUevent spare = NULL;

	for (;;) {
		*begun = (struct vgpu_group_begun){0};
		vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
		vgpu_groups_collect(engine, stream, 0);
		begun->front = stream->beside;
		group = begun->front && stream->head - stream->tail < VGPU_GROUPS - 1
				? NULL
				: open_group(stream, more->expected_ns, more->batch);
		if (group == NULL) {
			group = &stream->group[stream->head % VGPU_GROUPS];
			begun->before = unmarked(engine, stream);
			if (group->marker == NULL && spare == NULL) {
				vgpu_mutex_unlock(&stream->mutex);
				if (create == NULL ||
				    create(&spare, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
					*begun = (struct vgpu_group_begun){0};
					return NULL;
				}
				continue;
			}
			*group = (struct vgpu_group){.marker = group->marker != NULL ? group->marker : spare,
						     .front = group->front,
						     .begin = group->begin,
						     .end = group->end,
						     .batch = more->batch};
			stream->beside = false;
			spare = group->marker == spare ? NULL : spare;
			SET(stream->head, stream->head + 1);
			if (more->batch != 0 && vgpu_batch_is_held(&engine->load, more->batch))
				group->flight = VGPU_FLIGHT_HELD;
			else
				enter(engine, group, vgpu_now_ns());
		}
		add_to_group(engine, group, more);
		begun->front = begun->front && group->launches == 1;
		begun->time = more->batch != 0 && group->launches == 1;
		group->unmarked++;
		begun->mark = !more->askable || group->closed;
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

/* Records an event that stays with the group's place, made first if need be. Kept is where. */
static bool record_kept(CUevent *kept, unsigned int flags, CUstream handle)
{
	vgpu_fn_cuEventCreate *create = VGPU_REAL(cuEventCreate);
	vgpu_fn_cuEventRecord *record = VGPU_REAL(cuEventRecord);

	if (record == NULL || (*kept == NULL && (create == NULL || create(kept, flags) != CUDA_SUCCESS)))
		return false;
	return record(*kept, handle) == CUDA_SUCCESS;
}

void vgpu_groups_mark(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group)
{
	CUevent end;
	bool timed, marked;

	/* Another thread may just now be about to time the first of them. */
	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	end = group->end;
	timed = group->begun;
	vgpu_mutex_unlock(&stream->mutex);
	timed = timed && record_kept(&end, 0, handle);
	marked = timed || record_kept(&group->marker, CU_EVENT_DISABLE_TIMING, handle);
	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	group->end = end;
	if (marked) {
		group->behind = timed ? VGPU_BEHIND_END : VGPU_BEHIND_MARKER;
		group->unmarked = group->inside;
	}
	vgpu_mutex_unlock(&stream->mutex);
}

void vgpu_groups_time(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group)
{
	CUevent begin = group->begin;
	bool begun = record_kept(&begin, 0, handle);

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	group->begin = begin;
	group->begun = begun;
	vgpu_mutex_unlock(&stream->mutex);
}

void vgpu_groups_end_here(struct vgpu_engine *engine, struct vgpu_stream *stream)
{
	struct vgpu_group *last;
	CUstream handle;
	bool live;

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	last = unmarked(engine, stream);
	handle = GET(stream->handle);
	live = GET(stream->state) == VGPU_STREAM_LIVE && last != NULL && handle != CU_STREAM_PER_THREAD;
	stream->users += live;
	vgpu_mutex_unlock(&stream->mutex);
	if (!live)
		return;
	vgpu_groups_mark(stream, handle, last);
	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	stream->users--;
	vgpu_mutex_unlock(&stream->mutex);
}

void vgpu_groups_beside(struct vgpu_engine *engine, struct vgpu_stream *stream, CUstream handle)
{
	struct vgpu_group *last;

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	stream->beside = true;
	last = unmarked(engine, stream);
	stream->users += last != NULL;
	vgpu_mutex_unlock(&stream->mutex);
	if (last == NULL)
		return;
	vgpu_groups_mark(stream, handle, last);
	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	stream->users--;
	vgpu_mutex_unlock(&stream->mutex);
}

void vgpu_groups_front(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group)
{
	CUevent front = group->front;
	bool fronted = record_kept(&front, CU_EVENT_DISABLE_TIMING, handle);

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	group->front = front;
	group->fronted = fronted ? VGPU_FRONT_RECORDED : VGPU_FRONT_NOTHING;
	vgpu_mutex_unlock(&stream->mutex);
}

void vgpu_groups_end(struct vgpu_engine *engine, struct vgpu_stream *stream, CUstream handle,
		     struct vgpu_group *group, bool launched, bool mark, uint64_t expected_ns,
		     uint64_t begun_ns)
{
	vgpu_fn_cuEventRecord *record = VGPU_REAL(cuEventRecord);
	uint64_t now, saved = vgpu_cost_saved_ns(GET(engine->saved));

	if (mark && launched && group->batch != 0) {
		vgpu_groups_mark(stream, handle, group);
		mark = false;
	}
	mark = mark && launched && record != NULL && record(group->marker, handle) == CUDA_SUCCESS;
	now = vgpu_now_ns();
	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	group->inside--;
	if (mark) {
		group->behind = VGPU_BEHIND_MARKER;
		group->unmarked = group->inside;
	}
	if (group->first_ns == 0) {
		group->first_ns = now;
		group->unsure_ns = begun_ns != 0 ? now - begun_ns : 0;
	}
	group->last_ns = now;
	if (expected_ns != VGPU_UNKNOWN_NS) {
		/* Behind another one a kernel is prepared while that one runs. */
		if ((group->flight == VGPU_FLIGHT_HELD || stream->drained_ns > now + VGPU_LAUNCH_NS) &&
		    expected_ns > 2 * saved && group->expected_ns != VGPU_UNKNOWN_NS &&
		    group->expected_ns > expected_ns) {
			group->expected_ns -= saved;
			group->unseen_ns -= group->unseen_ns > saved ? saved : 0;
		}
		if (group->flight != VGPU_FLIGHT_HELD)
			stream->drained_ns = later(stream->drained_ns, now + VGPU_LAUNCH_NS) + expected_ns;
	}
	vgpu_mutex_unlock(&stream->mutex);
}

bool vgpu_groups_idle(struct vgpu_stream *stream)
{
	bool idle;

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	idle = stream->head == stream->tail;
	vgpu_mutex_unlock(&stream->mutex);
	return idle;
}

bool vgpu_groups_drained(struct vgpu_engine *engine, struct vgpu_stream *stream, CUstream handle)
{
	vgpu_fn_cuEventQuery *query = VGPU_REAL(cuEventQuery);
	vgpu_fn_cuStreamQuery *query_stream = VGPU_REAL(cuStreamQuery);
	struct vgpu_group *last;
	CUevent marker = NULL;
	bool idle, unmarked;

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	vgpu_groups_collect(engine, stream, 0);
	last = &stream->group[(stream->head - 1) % VGPU_GROUPS];
	idle = stream->head == stream->tail;
	unmarked = last->unmarked != 0 || last->behind == VGPU_BEHIND_NOTHING;
	marker = vgpu_groups_marker(last);
	vgpu_mutex_unlock(&stream->mutex);
	if (idle)
		return true;
	if (unmarked)
		return query_stream != NULL && query_stream(handle) == CUDA_SUCCESS;
	return query != NULL && query(marker) == CUDA_SUCCESS;
}

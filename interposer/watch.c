/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"

#include "atomics.h"
#include "batch.h"
#include "capture.h"
#include "futex.h"
#include "groups.h"
#include "pace.h"
#include "pass.h"
#include "symbols.h"
#include "time_account.h"

/* Work that takes so much longer than expected stops what comes behind it. */
#define STALL_NS 10000000u
/* The program launches nothing just now. */
#define QUIET_NS 150000u
/* So long at most a marker is waited for that another thread should record. */
#define MARKED_NS 5000000u

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

/* Asks with one question whether the second has been reached, and how long the GPU took from one to the other; 0: that
 * cannot be told. A question takes 2 to 3 µs, as the GPU has just written what it looks at (H200). */
static CUresult ask_between(CUevent begin, CUevent end, uint64_t *took_ns)
{
	vgpu_fn_cuEventElapsedTime *elapsed = VGPU_REAL(cuEventElapsedTime);
	vgpu_fn_cuEventQuery *query = VGPU_REAL(cuEventQuery);
	CUresult result;
	float ms;

	*took_ns = 0;
	result = elapsed != NULL ? elapsed(&ms, begin, end) : CUDA_ERROR_NOT_FOUND;
	if (result == CUDA_SUCCESS && ms > 0)
		*took_ns = (uint64_t)(ms * 1e6);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
		return result;
	return query != NULL ? query(end) : CUDA_SUCCESS;
}

/* Whether another slice's work may have been in the way: the last of it ends when a turn has begun. */
static bool is_first_of_turn(const struct vgpu_engine *engine, const struct vgpu_stream *stream)
{
	return GET(engine->seat.shared) && stream->meter.done_ns < engine->seat.taken_ns;
}

/* What is known of the work that lies before a group in its stream. */
struct before {
	uint64_t done_ns; /* when it was done, at the latest */
	uint64_t held_ns; /* until when the stream had something else to do */
};

static struct vgpu_measured measured(struct vgpu_engine *engine, const struct vgpu_group *group, uint64_t held_ns)
{
	uint64_t others_ns = GET(engine->others_until_ns);

	/* Where something else came first the GPU tells how long it took, but not when. */
	bool where = !group->fronted;

	held_ns = group->held_ns > held_ns ? group->held_ns : held_ns;
	return (struct vgpu_measured){.first_ns = group->first_ns, .last_ns = group->last_ns,
				      .expected_ns = where || group->took_ns == 0 ? group->expected_ns : group->took_ns,
				      .pending_ns = group->pending_ns, .took_ns = where ? group->took_ns : 0,
				      .reached_ns = group->reached_ns,
				      .held_until_ns = held_ns > others_ns ? held_ns : others_ns, .begun_ns = group->begun_ns};
}

/* With the stream's mutex held: the group is at work. What it surely takes is charged at once, first to what
 * was taken for it when it was launched. */
static void charge(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream, struct vgpu_group *group,
		   const struct before *before, uint64_t asked_ns)
{
	struct vgpu_engine *engine = &p->engine[device];
	struct vgpu_measured work;
	struct vgpu_busy busy;
	uint64_t begun = group->first_ns > stream->meter.done_ns ? group->first_ns : stream->meter.done_ns, used, paid;

	/* What is launched from now on belongs to another one: of all in this one the beginning is known. */
	group->closed = true;
	group->pending_ns = asked_ns;
	work = measured(engine, group, before->held_ns > stream->held_ns ? before->held_ns : stream->held_ns);
	busy = vgpu_meter_pending(&engine->meter, &work);
	used = vgpu_time_used(p, device, &busy);
	vgpu_meter_left(&engine->meter, &busy, used);
	paid = group->reserved_ns - group->paid_ns < used ? group->reserved_ns - group->paid_ns : used;
	group->paid_ns += paid;
	if (used != paid)
		vgpu_time_settle(p, device, asked_ns, (int64_t)(used - paid));
	begun = begun > before->done_ns ? begun : before->done_ns;
	if (group->expected_ns != VGPU_UNKNOWN_NS && group->expected_ns + VGPU_PACE_LATE_NS + begun < asked_ns)
		vgpu_pace_seen(asked_ns);
	if (group->expected_ns != VGPU_UNKNOWN_NS && group->expected_ns + STALL_NS + begun < asked_ns)
		engine->stalls_ns = asked_ns;
}

/* With the stream's mutex held: whether a thread may just now be launching with the stream's pass. Otherwise
 * the pass ends. */
static bool is_passing(struct vgpu_stream *stream, struct vgpu_group *group)
{
	uint32_t launches;
	uint64_t now;

	if (!vgpu_pass_is_open(stream, &launches))
		return false;
	now = vgpu_now_ns();
	if (launches != stream->passed_seen)
		group->last_ns = now;
	stream->passed_seen = launches;
	if (now < group->last_ns + QUIET_NS)
		return true;
	vgpu_groups_collect(stream, group->last_ns);
	return false;
}

/* With the stream's mutex held: whether nothing is in flight in other streams. */
static bool is_alone(const struct vgpu_engine *engine, const struct vgpu_stream *stream)
{
	uint32_t own = 0;

	for (uint32_t g = stream->tail; g != stream->head; g++)
		own += !stream->group[g % VGPU_GROUPS].held;
	return GET(engine->in_flight) == own;
}

enum seen { DONE, AT_WORK, NOT_SEEN };

/* Asks whether the stream's group of this number, counted from the oldest, is done. */
static enum seen ask_group(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream, uint32_t number,
			   struct before *before)
{
	struct vgpu_engine *engine = &p->engine[device];
	struct vgpu_group *group;
	CUresult result, front_result;
	CUcontext context;
	CUstream handle;
	CUevent marker, front, begin, end;
	bool to_the_end;
	uint32_t launches;
	uint64_t asked_ns, now, took_ns = 0;
	enum seen seen = NOT_SEEN;

	vgpu_mutex_lock(&stream->mutex);
	group = &stream->group[(stream->tail + number) % VGPU_GROUPS];
	if (GET(stream->state) != VGPU_STREAM_LIVE || stream->head - stream->tail <= number || group->inside != 0 || group->held ||
	    (stream->head - stream->tail == number + 1 && is_passing(stream, group))) {
		vgpu_mutex_unlock(&stream->mutex);
		return NOT_SEEN;
	}
	launches = group->launches;
	marker = vgpu_groups_marker(group);
	front = group->fronted && !group->reached ? group->front : NULL;
	/* A stream into which no more launches fit cannot be asked (H200: the call waits, and behind a wait for a word
	 * it waits for ever); so not while the program is launching one after the other. */
	to_the_end = group->unmarked != 0 && stream->head - stream->tail == number + 1 &&
		     !vgpu_batch_is_held(engine, GET(stream->plugged));
	if (to_the_end && vgpu_now_ns() < group->last_ns + QUIET_NS) {
		vgpu_mutex_unlock(&stream->mutex);
		return NOT_SEEN;
	}
	/* Another group has been begun: its thread is about to put a marker behind this one. */
	if (group->unmarked != 0 && !to_the_end && vgpu_now_ns() < group->last_ns + MARKED_NS) {
		vgpu_mutex_unlock(&stream->mutex);
		return NOT_SEEN;
	}
	begin = group->timed && group->dense && group->unmarked == 0 ? group->begin : NULL;
	end = group->end;
	context = stream->context;
	handle = stream->handle;
	stream->users++;
	vgpu_mutex_unlock(&stream->mutex);
	/* This thread may be made to wait for a core anywhere here: what is seen is between the two times. */
	asked_ns = vgpu_now_ns();
	front_result = front != NULL ? ask(p, front, context, handle, false) : CUDA_SUCCESS;
	if (front_result == CUDA_ERROR_NOT_READY)
		result = front_result;
	else
		result = begin != NULL ? ask_between(begin, end, &took_ns) : ask(p, marker, context, handle, to_the_end);
	now = vgpu_now_ns();
	vgpu_mutex_lock(&stream->mutex);
	stream->users--;
	if (GET(stream->state) != VGPU_STREAM_LIVE || group->launches != launches || group->inside != 0) {
		/* Another launch has come, or the stream is gone: the next look will tell. */
	} else if (front_result == CUDA_ERROR_NOT_READY) {
		group->held_ns = asked_ns;
	} else if (result == CUDA_ERROR_NOT_READY) {
		/* In the middle between two looks, on average; what was done by then as well decides for itself. Where it was
		 * not looked at before, only what comes is sure. With other streams it counts from the work before it: too
		 * much, but what they did is told apart from it by that. */
		if (front != NULL && group->held_ns != 0)
			group->held_ns += (asked_ns - group->held_ns) / 2;
		else if (front != NULL && is_alone(engine, stream))
			group->begun_ns = asked_ns;
		group->reached = true;
		charge(p, device, stream, group, before, asked_ns);
		seen = AT_WORK;
	} else {
		group->reached = group->closed = true;
		group->reached_ns = now;
		group->reached_launches = launches;
		group->took_ns = took_ns;
		before->held_ns = group->held_ns > before->held_ns ? group->held_ns : before->held_ns;
		before->done_ns = now;
		seen = DONE;
	}
	vgpu_mutex_unlock(&stream->mutex);
	return seen;
}

/* Asks one group after the other until one is not done. */
static void ask_stream(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream)
{
	struct before before = {0};

	if (!vgpu_groups_any(stream))
		return;
	for (uint32_t number = 0; number < VGPU_GROUPS && ask_group(p, device, stream, number, &before) == DONE; number++)
		;
}

/* When the stream's oldest group was launched, done or not done as is asked for; UINT64_MAX: there is none. */
static uint64_t oldest_ns(struct vgpu_stream *stream, bool done)
{
	uint64_t first_ns = UINT64_MAX;

	if (!vgpu_groups_any(stream))
		return first_ns;
	vgpu_mutex_lock(&stream->mutex);
	if (GET(stream->state) == VGPU_STREAM_LIVE && stream->head != stream->tail &&
	    (vgpu_groups_oldest(stream)->reached_ns != 0) == done)
		first_ns = vgpu_groups_oldest(stream)->first_ns;
	vgpu_mutex_unlock(&stream->mutex);
	return first_ns;
}

/* Takes the stream's oldest group away if it is done. */
static bool finish(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream, struct vgpu_group *out,
		   struct vgpu_busy *busy)
{
	struct vgpu_engine *engine = &p->engine[device];
	struct vgpu_measured work;
	struct vgpu_group *group;
	bool done;

	vgpu_mutex_lock(&stream->mutex);
	group = vgpu_groups_oldest(stream);
	done = GET(stream->state) == VGPU_STREAM_LIVE && stream->head != stream->tail && group->reached_ns != 0;
	/* Where there is no place for another group, launches come to one that was done. */
	if (done && (group->launches != group->reached_launches || group->inside != 0)) {
		group->reached_ns = 0;
		done = false;
	}
	if (done) {
		stream->held_ns = group->held_ns > stream->held_ns ? group->held_ns : stream->held_ns;
		work = measured(engine, group, stream->held_ns);
		work.took_ns = is_first_of_turn(engine, stream) ? 0 : work.took_ns;
		*busy = vgpu_meter_finish(&engine->meter, &stream->meter, &work);
		SET(engine->progress_ns, busy->end_ns);
		*out = *group;
		vgpu_groups_drop(stream);
		vgpu_groups_leave(engine, group);
	}
	vgpu_mutex_unlock(&stream->mutex);
	return done;
}

/* Takes away what is done, in the order in which it was launched. */
static void finish_all(struct vgpu_process *p, uint32_t device, uint32_t high, vgpu_group_done *done)
{
	struct vgpu_stream *stream = p->engine[device].stream;
	uint64_t first_ns[VGPU_STREAMS];
	struct vgpu_group group;
	struct vgpu_busy busy;

	for (uint32_t s = 0; s < high; s++)
		first_ns[s] = oldest_ns(&stream[s], true);
	for (uint32_t looks = 0; looks < high * VGPU_GROUPS; looks++) {
		uint32_t next = 0;

		for (uint32_t s = 1; s < high; s++)
			next = first_ns[s] < first_ns[next] ? s : next;
		if (first_ns[next] == UINT64_MAX)
			return;
		if (finish(p, device, &stream[next], &group, &busy))
			done(p, device, &group, &busy, vgpu_now_ns());
		first_ns[next] = oldest_ns(&stream[next], true);
	}
}

/* First what is at work counts, so that what other streams did at the same time does not count again. */
void vgpu_watch_look(struct vgpu_process *p, uint32_t device, vgpu_group_done *done)
{
	struct vgpu_engine *engine = &p->engine[device];
	uint32_t high = __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE);
	uint64_t since_ns = UINT64_MAX;

	engine->stalls_ns = 0;
	for (uint32_t s = 0; s < high; s++)
		ask_stream(p, device, &engine->stream[s]);
	SET(engine->stalled_ns, engine->stalls_ns);
	finish_all(p, device, high, done);
	for (uint32_t s = 0; s < high; s++) {
		uint64_t first_ns = oldest_ns(&engine->stream[s], false);

		since_ns = first_ns < since_ns ? first_ns : since_ns;
	}
	vgpu_meter_rest(&engine->meter, since_ns);
}

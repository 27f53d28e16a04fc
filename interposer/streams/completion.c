/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams/completion.h"

#include "admission/credit.h"
#include "admission/cosched.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "streams/query.h"
#include "streams/groups.h"

/* Work that takes so much longer than expected stops what comes behind it. */
#define STALL_NS 10000000u

/* Whether another slice's work may have been in the way: the last of it ends when a turn has begun. */
static bool is_first_of_turn(const struct vgpu_engine *engine, const struct vgpu_stream *stream)
{
	return GET(engine->load.turns.shared) && stream->meter.done_ns < GET(engine->load.turns.taken_ns);
}

static struct vgpu_measured measured(struct vgpu_engine *engine, const struct vgpu_group *group,
				     uint64_t held_ns)
{
	uint64_t others_ns = GET(engine->load.others_until_ns);

	/* Where something else came first the GPU tells how long it took, but not when. */
	bool where = group->fronted == VGPU_FRONT_NOTHING;

	held_ns = group->held_ns > held_ns ? group->held_ns : held_ns;
	return (struct vgpu_measured){.first_ns = group->first_ns,
				      .last_ns = group->last_ns,
				      .expected_ns = where || group->took_ns == 0 ? group->unseen_ns
										  : group->took_ns,
				      .pending_ns = group->pending_ns,
				      .took_ns = where ? group->took_ns : 0,
				      .reached_ns = group->reached_ns,
				      .held_until_ns = held_ns > others_ns ? held_ns : others_ns,
				      .begun_ns = group->begun_ns};
}

/* With the stream's mutex held: the group is at work. What it surely takes is charged at once, first to what
 * was taken for it when it was launched. */
static void charge(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream,
		   struct vgpu_group *group, const struct vgpu_before *before, uint64_t asked_ns)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	struct vgpu_measured work;
	struct vgpu_busy busy;
	uint64_t begun = group->first_ns > stream->meter.done_ns ? group->first_ns : stream->meter.done_ns,
		 used, paid;

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
	if (group->expected_ns != VGPU_UNKNOWN_NS &&
	    group->expected_ns + VGPU_COSCHED_LATE_NS + begun < asked_ns)
		vgpu_cosched_seen(asked_ns);
	if (group->expected_ns != VGPU_UNKNOWN_NS && group->expected_ns + STALL_NS + begun < asked_ns)
		engine->stalls_ns = asked_ns;
	/* Between its launches the GPU may have had nothing to do. */
	begun = begun > group->last_ns ? begun : group->last_ns;
	if (group->fronted == VGPU_FRONT_NOTHING && group->unseen_ns < STALL_NS &&
	    begun + group->unseen_ns * VGPU_LONGER + VGPU_LONGER_NS < asked_ns)
		engine->longer_ns = asked_ns;
}

/* With the stream's mutex held: whether nothing is in flight in other streams. */
static bool is_alone(const struct vgpu_engine *engine, const struct vgpu_stream *stream)
{
	uint32_t own = 0;

	for (uint32_t g = stream->tail; g != stream->head; g++)
		own += stream->group[g % VGPU_GROUPS].flight != VGPU_FLIGHT_HELD;
	return GET(engine->load.in_flight) == own;
}

/* With the stream's mutex held: so many launches ran in a row, with nothing of others between them. */
static void learn_cost(struct vgpu_engine *engine, const struct vgpu_stream *stream, uint32_t launches,
		       uint64_t expected_ns, uint64_t unseen_ns, uint64_t took_ns, uint64_t now)
{
	/* Longer than all that was in flight, so it was not in other streams' way either. What is not held
	 * back may take as long, and the GPU does not tell. */
	if (unseen_ns < STALL_NS && took_ns > GET(engine->load.expected_ns) &&
	    took_ns > unseen_ns * VGPU_LONGER + VGPU_LONGER_NS)
		engine->longer_ns = now;
	if (vgpu_cost_tells_saved(launches, expected_ns) && is_alone(engine, stream))
		SET(engine->saved, vgpu_cost_saved(engine->saved, launches, expected_ns, took_ns));
}

/* With the stream's mutex held: all that was asked about is done. What the GPU took for several of them
 * together is shared among them by what was expected of each. */
static void note_done(struct vgpu_engine *engine, struct vgpu_stream *stream, const struct vgpu_query *q,
		      const struct vgpu_answer *answer, uint64_t now, struct vgpu_before *before)
{
	const struct vgpu_group *first = vgpu_groups_at(stream, q->number);
	uint32_t count = answer->asked->count;
	uint64_t took_ns = answer->took_ns, expected_ns = 0, unseen_ns = 0, left_ns = took_ns;

	for (uint32_t n = 0; n < count; n++) {
		expected_ns += vgpu_groups_at(stream, q->number + n)->expected_ns;
		unseen_ns += vgpu_groups_at(stream, q->number + n)->unseen_ns;
	}
	if (took_ns != 0 && first->fronted == VGPU_FRONT_NOTHING && first->expected_ns != VGPU_UNKNOWN_NS &&
	    !GET(engine->load.turns.shared))
		learn_cost(engine, stream, answer->asked->launches, expected_ns, unseen_ns, took_ns, now);
	for (uint32_t n = 0; n < count; n++) {
		struct vgpu_group *group = vgpu_groups_at(stream, q->number + n);

		vgpu_groups_front_reached(group);
		group->closed = true;
		group->reached_ns = now;
		group->reached_launches = group->launches;
		group->took_ns = n + 1 == count ? left_ns
						: (uint64_t)((double)took_ns * (double)group->expected_ns /
							     (double)expected_ns);
		left_ns -= group->took_ns;
		before->held_ns = group->held_ns > before->held_ns ? group->held_ns : before->held_ns;
	}
	before->done_ns = now;
	before->end_ns = vgpu_query_begin_ns(stream, q->number, before) + took_ns;
}

/* With the stream's mutex held: the group is at work, and nothing lies in front of it any more. */
static void note_at_work(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream,
			 const struct vgpu_query *q, uint64_t asked_ns, const struct vgpu_before *before)
{
	struct vgpu_group *group = vgpu_groups_at(stream, q->number);

	/* In the middle between two looks, on average; what was done by then as well decides for itself.
	 * Where it was not looked at before, only what comes is sure. With other streams it counts from the
	 * work before it: too much, but what they did is told apart from it by that. */
	if (q->front != NULL && group->held_ns != 0)
		group->held_ns += (asked_ns - group->held_ns) / 2;
	else if (q->front != NULL && is_alone(vgpu_engine(p, device), stream))
		group->begun_ns = asked_ns;
	vgpu_groups_front_reached(group);
	charge(p, device, stream, group, before, asked_ns);
}

/* Asks about the stream's groups from this number on, counted from the oldest. Returns how many of them are
 * done; 0: not the first, or that is not known. */
static uint32_t ask_groups(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream,
			   uint32_t number, struct vgpu_before *before)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	struct vgpu_query q;
	struct vgpu_answer answer;
	uint32_t done = 0;
	uint64_t asked_ns, now;
	bool is_one;

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	is_one = vgpu_query_about(engine, stream, number, before, &q);
	stream->users += is_one;
	vgpu_mutex_unlock(&stream->mutex);
	if (!is_one)
		return 0;
	/* This thread may be made to wait for a core anywhere here: what is seen is between the two times. */
	asked_ns = vgpu_now_ns();
	answer = vgpu_query_driver(p, &q);
	now = vgpu_now_ns();
	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	stream->users--;
	if (vgpu_query_still_holds(stream, &q, &answer)) {
		if (answer.state == VGPU_QUERY_DONE) {
			note_done(engine, stream, &q, &answer, now, before);
			done = answer.asked->count;
		} else if (answer.state == VGPU_QUERY_HELD) {
			vgpu_groups_at(stream, number)->held_ns = asked_ns;
		} else {
			note_at_work(p, device, stream, &q, asked_ns, before);
		}
	}
	vgpu_mutex_unlock(&stream->mutex);
	return done;
}

/* Asks about one group after the other until one is not done. */
static void ask_stream(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream)
{
	struct vgpu_before before = {0};
	uint32_t done = 1;

	if (!vgpu_groups_any(stream))
		return;
	for (uint32_t number = 0; number < VGPU_GROUPS && done != 0; number += done)
		done = ask_groups(p, device, stream, number, &before);
}

/* When the stream's oldest group was launched, done or not done as is asked for; UINT64_MAX: there is
 * none. */
static uint64_t oldest_ns(struct vgpu_stream *stream, bool done)
{
	uint64_t first_ns = UINT64_MAX;

	if (!vgpu_groups_any(stream))
		return first_ns;
	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	if (GET(stream->state) == VGPU_STREAM_LIVE && stream->head != stream->tail &&
	    (vgpu_groups_oldest(stream)->reached_ns != 0) == done)
		first_ns = vgpu_groups_oldest(stream)->first_ns;
	vgpu_mutex_unlock(&stream->mutex);
	return first_ns;
}

/* Takes the stream's oldest group away if it is done. */
static bool finish(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream,
		   struct vgpu_group *out, struct vgpu_busy *busy)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	struct vgpu_measured work;
	struct vgpu_group *group;
	bool done;

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	group = vgpu_groups_oldest(stream);
	done = GET(stream->state) == VGPU_STREAM_LIVE && stream->head != stream->tail &&
	       group->reached_ns != 0;
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
		SET(engine->load.progress_ns, busy->end_ns);
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
	struct vgpu_stream *stream = vgpu_engine(p, device)->stream;
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
void vgpu_completion_poll(struct vgpu_process *p, uint32_t device, vgpu_group_done *done)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	uint32_t high = __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE);
	uint64_t since_ns = UINT64_MAX;

	engine->stalls_ns = 0;
	for (uint32_t s = 0; s < high; s++)
		ask_stream(p, device, &engine->stream[s]);
	SET(engine->load.stalled_ns, engine->stalls_ns);
	finish_all(p, device, high, done);
	for (uint32_t s = 0; s < high; s++) {
		uint64_t first_ns = oldest_ns(&engine->stream[s], false);

		since_ns = first_ns < since_ns ? first_ns : since_ns;
	}
	vgpu_meter_rest(&engine->meter, since_ns);
}

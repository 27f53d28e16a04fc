/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "streams/query.h"

#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "driver/capture.h"
#include "streams/groups.h"
#include "streams/lease.h"
#include "streams/own.h"

/* The program launches nothing just now. */
#define QUIET_NS 150000u
/* So long at most a marker is waited for that another thread should record. */
#define MARKED_NS 5000000u

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* ---- what to ask, with the stream's mutex held ---- */

/* Whether a thread may just now be launching with the stream's lease. Otherwise the lease ends. */
static bool is_passing(struct vgpu_engine *engine, struct vgpu_stream *stream, struct vgpu_group *group)
{
	uint32_t launches;
	uint64_t now;

	if (!vgpu_lease_is_open(stream, &launches))
		return false;
	now = vgpu_now_ns();
	if (launches != stream->leased_seen)
		group->last_ns = now;
	stream->leased_seen = launches;
	if (now < group->last_ns + QUIET_NS)
		return true;
	vgpu_groups_collect(engine, stream, group->last_ns);
	return false;
}

/* Whether the GPU tells how long it took: all of it was there before it could begin. */
static bool is_timed(const struct vgpu_group *group)
{
	return group->behind == VGPU_BEHIND_END && group->flight == VGPU_FLIGHT_DENSE && group->unmarked == 0;
}

/* The same, also where and when that was: nothing else lies in front of it. */
static bool is_placed(const struct vgpu_group *group)
{
	return is_timed(group) && group->fronted == VGPU_FRONT_NOTHING && group->inside == 0 &&
	       group->expected_ns != 0 && group->expected_ns != VGPU_UNKNOWN_NS;
}

uint64_t vgpu_query_begin_ns(const struct vgpu_stream *stream, uint32_t number,
			     const struct vgpu_before *before)
{
	return later(later(before->end_ns, stream->meter.done_ns), vgpu_groups_at(stream, number)->first_ns);
}

/* Whether nothing more will come into the group, and it can be asked about together with those in front of
 * it. */
static bool is_closed_up(const struct vgpu_stream *stream, uint32_t number)
{
	const struct vgpu_group *group = vgpu_groups_at(stream, number);
	bool ended = group->closed || group->batch != 0 || number + 1 < stream->head - stream->tail;

	return ended && vgpu_groups_marker(group) != NULL && group->unmarked == 0 && group->inside == 0 &&
	       group->flight != VGPU_FLIGHT_HELD && group->expected_ns != VGPU_UNKNOWN_NS;
}

/* How many groups, this one and some behind it, should be done by now. Where the GPU times them: that ran
 * without a pause between them, as each was let go before the first can have been done. */
static uint32_t run_of(const struct vgpu_stream *stream, uint32_t number, uint64_t begin_ns, uint64_t now,
		       bool timed)
{
	const struct vgpu_group *first = vgpu_groups_at(stream, number);
	uint32_t count = 1;
	uint64_t end_ns = begin_ns + first->expected_ns;

	for (; number + count < stream->head - stream->tail; count++) {
		const struct vgpu_group *next = vgpu_groups_at(stream, number + count);

		if (is_placed(next) != timed || !is_closed_up(stream, number + count) ||
		    (timed && next->first_ns > first->first_ns + first->expected_ns / 2))
			break;
		end_ns = later(end_ns, next->first_ns) + next->expected_ns;
		if (end_ns > now)
			break;
	}
	return count;
}

static struct vgpu_queried queried_of(const struct vgpu_stream *stream, uint32_t number, uint32_t count)
{
	const struct vgpu_group *first = vgpu_groups_at(stream, number),
				*last = vgpu_groups_at(stream, number + count - 1);
	bool timed = count == 1 ? is_timed(first) : is_placed(first);
	struct vgpu_queried asked = {
		.count = count, .marker = vgpu_groups_marker(last), .end = timed ? last->end : NULL};

	for (uint32_t n = 0; n < count; n++)
		asked.launches += vgpu_groups_at(stream, number + n)->launches;
	return asked;
}

bool vgpu_query_about(struct vgpu_engine *engine, struct vgpu_stream *stream, uint32_t number,
		      const struct vgpu_before *before, struct vgpu_query *out)
{
	struct vgpu_group *group = vgpu_groups_at(stream, number);
	uint32_t in_flight = stream->head - stream->tail;
	struct vgpu_query q = {.number = number};
	uint32_t count = 1;
	uint64_t now = vgpu_now_ns();

	if (GET(stream->state) != VGPU_STREAM_LIVE || in_flight <= number || group->inside != 0 ||
	    group->flight == VGPU_FLIGHT_HELD ||
	    (in_flight == number + 1 && is_passing(engine, stream, group)))
		return false;
	q.context = stream->context;
	q.handle = stream->handle;
	q.front = group->fronted == VGPU_FRONT_RECORDED ? group->front : NULL;
	/* A stream into which no more launches fit cannot be asked (H200: the call waits, and behind a wait
	 * for a word it waits for ever); so not while the program is launching one after the other. */
	q.to_the_end = group->unmarked != 0 && in_flight == number + 1 &&
		       !vgpu_batch_is_held(&engine->load, GET(stream->waits_for_batch));
	if (q.to_the_end && now < group->last_ns + QUIET_NS)
		return false;
	/* Another group has been begun: its thread is about to put a marker behind this one. */
	if (group->unmarked != 0 && !q.to_the_end && now < group->last_ns + MARKED_NS)
		return false;
	/* Other slices' work may lie between and in front of what this one has let go. */
	if (is_placed(group) && !GET(engine->load.turns.shared)) {
		uint64_t begin_ns = vgpu_query_begin_ns(stream, number, before);

		/* What comes behind what has only now been seen to be done is asked about once it can be done
		 * as well: that it is at work needs to be known only where other work in flight is not
		 * timed. */
		if (number != 0 && begin_ns + group->expected_ns > now && GET(engine->load.loose) == 0)
			return false;
		count = run_of(stream, number, begin_ns, now, true);
	} else if (!is_placed(group) && is_closed_up(stream, number)) {
		count = run_of(stream, number, vgpu_query_begin_ns(stream, number, before), now, false);
	}
	q.begin = group->begin;
	for (; count != 0; count /= 2)
		q.part[q.parts++] = queried_of(stream, number, count);
	*out = q;
	return true;
}

bool vgpu_query_still_holds(const struct vgpu_stream *stream, const struct vgpu_query *q,
			    const struct vgpu_answer *answer)
{
	for (uint32_t n = 0; n < answer->asked->count; n++) {
		if (vgpu_groups_at(stream, q->number + n)->inside != 0)
			return false;
	}
	return GET(stream->state) == VGPU_STREAM_LIVE &&
	       queried_of(stream, q->number, answer->asked->count).launches == answer->asked->launches;
}

/* ---- asking ---- */

/* Asks whether the marker has been reached or, where launches lie behind it, the stream's end. */
static CUresult ask_whether(struct vgpu_process *p, const struct vgpu_query *q, CUevent marker,
			    bool to_the_end)
{
	vgpu_fn_cuEventQuery *query = VGPU_REAL(cuEventQuery);
	vgpu_fn_cuStreamQuery *query_stream = VGPU_REAL(cuStreamQuery);
	vgpu_fn_cuCtxSetCurrent *set_current = VGPU_REAL(cuCtxSetCurrent);

	/* A stream is not to be asked while something is captured; then what lies behind the marker, a few
	 * short kernels, passes for what they are expected to take. */
	if (!to_the_end || query_stream == NULL || set_current == NULL || vgpu_capture_possible(p))
		return marker != NULL && query != NULL ? query(marker) : CUDA_SUCCESS;
	if (GET(vgpu_streams(p)->poller_context) != q->context) {
		if (set_current(q->context) != CUDA_SUCCESS)
			return CUDA_SUCCESS;
		SET(vgpu_streams(p)->poller_context, q->context);
	}
	return query_stream(q->handle);
}

/* Asks with one question whether the second has been reached, and how long the GPU took from one to the
 * other. */
static CUresult ask_how_long(CUevent begin, CUevent end, uint64_t *took_ns)
{
	vgpu_fn_cuEventElapsedTime *elapsed = VGPU_REAL(cuEventElapsedTime);
	vgpu_fn_cuEventQuery *query = VGPU_REAL(cuEventQuery);
	CUresult result;
	float ms;

	result = elapsed != NULL ? elapsed(&ms, begin, end) : CUDA_ERROR_NOT_FOUND;
	if (result == CUDA_SUCCESS && ms > 0)
		*took_ns = (uint64_t)(ms * 1e6);
	if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
		return result;
	return query != NULL ? query(end) : CUDA_SUCCESS;
}

struct vgpu_answer vgpu_query_driver(struct vgpu_process *p, const struct vgpu_query *q)
{
	struct vgpu_answer answer = {.state = VGPU_QUERY_HELD, .asked = &q->part[q->parts - 1]};

	if (q->front != NULL && ask_whether(p, q, q->front, false) == CUDA_ERROR_NOT_READY)
		return answer;
	for (uint32_t i = 0; i < q->parts; i++) {
		const struct vgpu_queried *asked = &q->part[i];
		CUresult result = asked->end != NULL ? ask_how_long(q->begin, asked->end, &answer.took_ns)
						     : ask_whether(p, q, asked->marker, q->to_the_end);

		if (result != CUDA_ERROR_NOT_READY) {
			answer.state = VGPU_QUERY_DONE;
			answer.asked = asked;
			return answer;
		}
	}
	answer.state = VGPU_QUERY_AT_WORK;
	return answer;
}

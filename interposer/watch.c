/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "watch.h"

#include "atomics.h"
#include "batch.h"
#include "capture.h"
#include "futex.h"
#include "groups.h"
#include "symbols.h"

/* Work that takes so much longer than expected stops what comes behind it. */
#define STALL_NS 10000000u

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

/* How long the GPU took from one to the other; 0: that cannot be told. */
static uint64_t between(CUevent begin, CUevent end)
{
	vgpu_fn_cuEventElapsedTime *elapsed = VGPU_REAL(cuEventElapsedTime);
	float ms;

	return elapsed != NULL && elapsed(&ms, begin, end) == CUDA_SUCCESS && ms > 0 ? (uint64_t)(ms * 1e6) : 0;
}

/* Whether another slice's work may have been in the way: the last of it ends when a turn has begun. */
static bool is_first_of_turn(const struct vgpu_engine *engine, const struct vgpu_stream *stream)
{
	return GET(engine->seat.shared) && stream->meter.done_ns < engine->seat.taken_ns;
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
	CUevent marker, front, begin, end;
	bool to_the_end;
	uint32_t launches;
	uint64_t asked_ns, now, took_ns = 0;
	bool done;

	vgpu_mutex_lock(&stream->mutex);
	group = vgpu_groups_oldest(stream);
	if (GET(stream->state) != VGPU_STREAM_LIVE || stream->tail == stream->head || group->inside != 0 || group->held) {
		vgpu_mutex_unlock(&stream->mutex);
		return false;
	}
	launches = group->launches;
	marker = group->marked ? group->marker : NULL;
	front = group->fronted && !group->reached ? group->front : NULL;
	/* A stream into which no more launches fit, behind a wait, cannot be asked (H200: the call waits). */
	to_the_end = group->unmarked != 0 && stream->head - stream->tail == 1 && !vgpu_batch_is_held(engine, GET(stream->plugged));
	/* Where something else comes first the GPU tells how long it took, but not when. */
	begin = group->timed && group->dense && group->unmarked == 0 && !group->fronted && !is_first_of_turn(engine, stream) ? group->begin : NULL;
	end = group->end;
	context = stream->context;
	handle = stream->handle;
	stream->users++;
	vgpu_mutex_unlock(&stream->mutex);
	/* This thread may be made to wait for a core anywhere here: what is seen is between the two times. */
	asked_ns = vgpu_now_ns();
	front_result = front != NULL ? ask(p, front, context, handle, false) : CUDA_SUCCESS;
	result = front_result == CUDA_ERROR_NOT_READY ? front_result : ask(p, marker, context, handle, to_the_end);
	now = vgpu_now_ns();
	if (result == CUDA_SUCCESS && begin != NULL)
		took_ns = between(begin, end);
	vgpu_mutex_lock(&stream->mutex);
	stream->users--;
	done = result != CUDA_ERROR_NOT_READY && stream->tail != stream->head && group == vgpu_groups_oldest(stream) &&
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
			.took_ns = took_ns, .pending_ns = group->pending_ns, .reached_ns = now, .held_until_ns = group->held_ns > GET(engine->others_until_ns) ? group->held_ns : GET(engine->others_until_ns),
			.device_ns = GET(vgpu_pages.ledger->busy_until_ns[device])});
		SET(engine->progress_ns, busy->end_ns);
		*out = *group;
		stream->tail++;
		vgpu_groups_leave(engine, group);
	}
	vgpu_mutex_unlock(&stream->mutex);
	return done;
}

/* When the stream's oldest group was launched; UINT64_MAX: it has none. */
static uint64_t oldest_ns(struct vgpu_stream *stream)
{
	uint64_t first_ns = UINT64_MAX;

	vgpu_mutex_lock(&stream->mutex);
	if (GET(stream->state) == VGPU_STREAM_LIVE && stream->head != stream->tail && !vgpu_groups_oldest(stream)->held)
		first_ns = vgpu_groups_oldest(stream)->first_ns;
	vgpu_mutex_unlock(&stream->mutex);
	return first_ns;
}

/* In the order in which they were launched: what streams take of the same time is told apart by when
 * each of them begins. */
void vgpu_watch_look(struct vgpu_process *p, uint32_t device, vgpu_group_done *done)
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

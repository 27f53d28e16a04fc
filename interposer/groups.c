/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "groups.h"

#include "atomics.h"
#include "futex.h"
#include "symbols.h"

/* A group is closed once this much is expected of it: how finely completion is seen. */
#define GROUP_NS 200000u
#define GROUP_LAUNCHES 256u
/* Kernels shorter than this share a marker, so many of them. */
#define SHORT_NS 20000u
#define UNMARKED 8u
/* What a kernel takes less behind another one than alone (H200). */
#define PREPARED_NS 240u

void vgpu_groups_leave(struct vgpu_engine *engine, const struct vgpu_group *group)
{
	if (group->expected_ns == VGPU_UNKNOWN_NS)
		__atomic_fetch_sub(&engine->unknown, 1, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&engine->expected_ns, group->reserved_ns, __ATOMIC_RELAXED);
	__atomic_fetch_sub(&engine->in_flight, 1, __ATOMIC_RELAXED);
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

struct vgpu_group *vgpu_groups_begin(struct vgpu_engine *engine, struct vgpu_stream *stream, uint64_t key,
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

void vgpu_groups_front(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group)
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

void vgpu_groups_end(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group, bool launched, bool mark,
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

bool vgpu_groups_idle(struct vgpu_stream *stream)
{
	bool idle;

	vgpu_mutex_lock(&stream->mutex);
	idle = stream->head == stream->tail;
	vgpu_mutex_unlock(&stream->mutex);
	return idle;
}

bool vgpu_groups_drained(struct vgpu_stream *stream, CUstream handle)
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


/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Launches of one stream in groups, with a marker behind each: what a launch leaves behind. */
#ifndef VGPU_STREAMS_GROUPS_H
#define VGPU_STREAMS_GROUPS_H

#include "streams/engine.h"

/* What is to be done for a launch. A marker between two kernels costs the GPU some of what it gains by
 * preparing the second one while the first runs, so there is one for a group, and none as long as the
 * whole stream can be asked about. */
struct vgpu_group_begun {
	struct vgpu_group *before; /* first of all a marker behind this one */
	bool front;		   /* then one in front (vgpu_groups_front) */
	bool time;		   /* and one to time it from (vgpu_groups_time) */
	bool mark;		   /* and one behind it */
};

/* One launch more, as the group's fields have it. */
struct vgpu_group_more {
	uint64_t key, expected_ns, unseen_ns, reserved_ns;
	uint64_t batch; /* what it is held back with, or 0 */
	bool askable;	/* whether the stream can be asked about by another thread */
};

/* Before a launch: the group that it will belong to. NULL when no marker can be had. */
struct vgpu_group *vgpu_groups_begin(struct vgpu_engine *engine, struct vgpu_stream *stream,
				     const struct vgpu_group_more *more, struct vgpu_group_begun *begun);
void vgpu_groups_mark(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group);
/* Right before the first of those that are held back together. */
void vgpu_groups_time(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group);
/* What was launched into the stream ends here. By any thread, so not for a thread's own stream. */
void vgpu_groups_end_here(struct vgpu_engine *engine, struct vgpu_stream *stream);
/* Before something that is not counted: what was launched ends in front of it. */
void vgpu_groups_beside(struct vgpu_engine *engine, struct vgpu_stream *stream, CUstream handle);
/* Right before it, where something that is not counted lies in front of it in the stream. */
void vgpu_groups_front(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group);
/* After it. expected_ns: of this launch alone. begun_ns: since when the driver had it; 0 if that does not
 * matter. */
void vgpu_groups_end(struct vgpu_engine *engine, struct vgpu_stream *stream, CUstream handle,
		     struct vgpu_group *group, bool launched, bool mark, uint64_t expected_ns,
		     uint64_t begun_ns);
/* Then gives the thread a lease for some more (lease.h), if what was taken from the share covers it. */
void vgpu_groups_give_lease(struct vgpu_engine *engine, struct vgpu_stream *stream, CUcontext context,
			    CUstream handle, struct vgpu_group *group);
/* With the mutex held: ends the stream's lease; what was launched with it belongs to the last group, and what
 * it was paid for beyond that can be had by others again. last_ns: when the last of it was, at the latest; 0:
 * now. */
void vgpu_groups_collect(struct vgpu_engine *engine, struct vgpu_stream *stream, uint64_t last_ns);

/* Whether nothing is in flight in the stream, as far as the poller knows. */
bool vgpu_groups_idle(struct vgpu_stream *stream);
/* Whether all that was launched into the stream is done: the driver is asked. For who launches into it. */
bool vgpu_groups_drained(struct vgpu_engine *engine, struct vgpu_stream *stream, CUstream handle);

/* With the stream's mutex held: the group of this number, counted from the oldest. */
static inline struct vgpu_group *vgpu_groups_at(const struct vgpu_stream *stream, uint32_t number)
{
	return &stream->group[(stream->tail + number) % VGPU_GROUPS];
}

/* With the stream's mutex held, of a stream that has something in flight. */
static inline struct vgpu_group *vgpu_groups_oldest(const struct vgpu_stream *stream)
{
	return vgpu_groups_at(stream, 0);
}

/* With the stream's mutex held: what lies behind the launches. NULL: nothing yet. */
static inline CUevent vgpu_groups_marker(const struct vgpu_group *group)
{
	switch (group->behind) {
	case VGPU_BEHIND_END:
		return group->end;
	case VGPU_BEHIND_MARKER:
		return group->marker;
	default:
		return NULL;
	}
}

/* With the stream's mutex held: what the stream had to do in front of the group is done. */
static inline void vgpu_groups_front_reached(struct vgpu_group *group)
{
	if (group->fronted == VGPU_FRONT_RECORDED)
		group->fronted = VGPU_FRONT_REACHED;
}

/* Whether something may be in flight in the stream, at a glance: another thread may just be launching. */
static inline bool vgpu_groups_any(const struct vgpu_stream *stream)
{
	return __atomic_load_n(&stream->head, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&stream->tail, __ATOMIC_RELAXED);
}

/* With the stream's mutex held: the oldest is not in flight any more. A stream begins anew with the first of
 * its places when it was the last, so that it has no more markers than it needs. */
static inline void vgpu_groups_drop(struct vgpu_stream *stream)
{
	bool empty = stream->tail + 1 == stream->head && stream->users == 0;

	__atomic_store_n(&stream->tail, empty ? 0 : stream->tail + 1, __ATOMIC_RELAXED);
	if (empty)
		__atomic_store_n(&stream->head, 0, __ATOMIC_RELAXED);
}

/* With the stream's mutex held: a group that was held back may begin. */
void vgpu_groups_let_go(struct vgpu_engine *engine, struct vgpu_stream *stream, struct vgpu_group *group,
			uint64_t now_ns);

/* Takes back what is said of a group as long as it is in flight. */
void vgpu_groups_leave(struct vgpu_engine *engine, const struct vgpu_group *group);

#endif

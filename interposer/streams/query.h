/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver is asked about the work in flight in one stream. A query takes the poller 2 to 3 µs, as the
 * GPU has just written what it looks at (H200), so there are as few as can be. */
#ifndef VGPU_STREAMS_QUERY_H
#define VGPU_STREAMS_QUERY_H

#include "streams/engine.h"

/* What a look has found out of the work that lies before a group in its stream. */
struct vgpu_before {
	uint64_t done_ns; /* when it was done, at the latest */
	uint64_t end_ns;  /* and at the earliest, where the GPU has timed it; or 0 */
	uint64_t held_ns; /* until when the stream had something else to do */
};

/* Some groups, the first of them and what lies behind it. */
struct vgpu_queried {
	uint32_t count;
	uint32_t launches; /* in all of them */
	CUevent marker;	   /* behind the last */
	CUevent end;	   /* the same, where the GPU times all of them; else NULL */
};

/* A number of groups, half of them and so on down to one: VGPU_GROUPS of them at most. */
#define VGPU_QUERIED 8

/* What to ask: whether the most of them are done, and if not, half of them, and so on. */
struct vgpu_query {
	uint32_t number; /* of the first, from the oldest */
	uint32_t parts;
	struct vgpu_queried part[VGPU_QUERIED]; /* each more than the next; the last is one group */
	CUevent front;	 /* what has to be reached before the first; or NULL */
	CUevent begin;	 /* in front of the first, where the GPU times it */
	bool to_the_end; /* of the whole stream instead of the only group's marker */
	CUcontext context;
	CUstream handle;
};

enum vgpu_query_state {
	VGPU_QUERY_HELD,	  /* the stream has something else to do in front of the first */
	VGPU_QUERY_AT_WORK, /* the first is not done */
	VGPU_QUERY_DONE,	  /* all of asked are */
};

struct vgpu_answer {
	enum vgpu_query_state state;
	const struct vgpu_queried *asked; /* about which that is */
	uint64_t took_ns;		/* what the GPU took for all of them; 0: that cannot be told */
};

/* With the stream's mutex held: what to ask about the groups from this number on. False when nothing can or
 * needs to be asked just now. */
bool vgpu_query_about(struct vgpu_engine *engine, struct vgpu_stream *stream, uint32_t number,
		      const struct vgpu_before *before, struct vgpu_query *out);
/* Without it, and with the stream in use. */
struct vgpu_answer vgpu_query_driver(struct vgpu_process *p, const struct vgpu_query *q);
/* With it again: whether the answer holds. Otherwise another launch has come, or the stream is gone: the next
 * look will tell. */
bool vgpu_query_still_holds(const struct vgpu_stream *stream, const struct vgpu_query *q,
			    const struct vgpu_answer *answer);

/* With the stream's mutex held: before that the group of this number cannot have begun. */
uint64_t vgpu_query_begin_ns(const struct vgpu_stream *stream, uint32_t number,
			     const struct vgpu_before *before);

#endif

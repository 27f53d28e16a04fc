/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Launches of one stream in groups, with a marker behind each: what a launch leaves behind. */
#ifndef VGPU_GROUPS_H
#define VGPU_GROUPS_H

#include "process.h"

/* Before a launch: the group that it will belong to. NULL when no marker can be had. *mark says whether
 * a marker must be put behind it: where the whole stream can be asked about (askable), short kernels
 * share one. *front asks for vgpu_groups_front. */
struct vgpu_group *vgpu_groups_begin(struct vgpu_engine *engine, struct vgpu_stream *stream, uint64_t key,
				     uint64_t expected_ns, uint64_t reserved_ns, bool askable, bool *mark, bool *front);
/* Right before it, where something that is not counted lies in front of it in the stream. */
void vgpu_groups_front(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group);
/* After it. expected_ns: of this launch alone. */
void vgpu_groups_end(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group, bool launched, bool mark,
		     uint64_t expected_ns);

/* Whether nothing is in flight in the stream, as far as the keeper knows. */
bool vgpu_groups_idle(struct vgpu_stream *stream);
/* Whether all that was launched into the stream is done: the driver is asked. For who launches into it. */
bool vgpu_groups_drained(struct vgpu_stream *stream, CUstream handle);

/* With the stream's mutex held, of a stream that has something in flight. */
static inline struct vgpu_group *vgpu_groups_oldest(struct vgpu_stream *stream)
{
	return &stream->group[stream->tail % VGPU_GROUPS];
}

/* Takes back what is said of a group as long as it is in flight. */
void vgpu_groups_leave(struct vgpu_engine *engine, const struct vgpu_group *group);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The streams that this process launches into, and the markers behind what is in flight. */
#ifndef VGPU_STREAMS_H
#define VGPU_STREAMS_H

#include "process.h"

/* The stream's place, NULL when there is none left. */
struct vgpu_stream *vgpu_streams_find(struct vgpu_engine *engine, CUcontext context, CUstream handle);

/* Before a launch: the group that it will belong to. NULL when no marker can be had. *mark says whether
 * a marker must be put behind it: where the whole stream can be asked about (askable), short kernels
 * share one. *front asks for vgpu_streams_front. */
struct vgpu_group *vgpu_streams_begin(struct vgpu_engine *engine, struct vgpu_stream *stream, uint64_t key,
				      uint64_t expected_ns, uint64_t reserved_ns, bool askable, bool *mark, bool *front);
/* Right before it, where something that is not counted lies in front of it in the stream. */
void vgpu_streams_front(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group);
/* After it. expected_ns: of this launch alone. */
void vgpu_streams_end(struct vgpu_stream *stream, CUstream handle, struct vgpu_group *group, bool launched, bool mark,
		      uint64_t expected_ns);

/* Something was put into the stream that keeps it waiting but not the device busy: a copy from the host,
 * an event of another stream, a function on the host. */
void vgpu_streams_beside(struct vgpu_process *p, CUcontext context, CUstream handle);

/* Whether nothing is in flight in the stream, as far as the keeper knows. */
bool vgpu_streams_idle(struct vgpu_stream *stream);
/* Whether all that was launched into the stream is done: the driver is asked. For who launches into it. */
bool vgpu_streams_drained(struct vgpu_stream *stream, CUstream handle);

/* Looks at what is in flight and calls done for each group that is. */
typedef void vgpu_group_done(struct vgpu_process *p, uint32_t device, const struct vgpu_group *group,
			     const struct vgpu_busy *busy, uint64_t now_ns);
void vgpu_streams_look(struct vgpu_process *p, uint32_t device, vgpu_group_done *done);

/* The stream, or all of a context, will be destroyed: from now on nothing touches its events. */
void vgpu_streams_gone(struct vgpu_process *p, CUstream handle);
void vgpu_streams_context_gone(struct vgpu_process *p, CUcontext context);

#endif

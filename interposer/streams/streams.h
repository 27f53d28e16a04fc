/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The streams that this process launches into: a place for each, found by its handle. */
#ifndef VGPU_STREAMS_STREAMS_H
#define VGPU_STREAMS_STREAMS_H

#include "streams/engine.h"

/* The stream's place, NULL when there is none left. */
struct vgpu_stream *vgpu_streams_find(struct vgpu_engine *engine, CUcontext context, CUstream handle);

/* Something was put into the stream that keeps it waiting but not the device busy: a copy from the host,
 * an event of another stream, a function on the host. */
void vgpu_streams_beside(struct vgpu_process *p, CUcontext context, CUstream handle);

/* The stream, or all of a context, will be destroyed: from now on nothing touches its events. */
void vgpu_streams_gone(struct vgpu_process *p, CUstream handle);
void vgpu_streams_context_gone(struct vgpu_process *p, CUcontext context);

#endif

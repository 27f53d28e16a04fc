/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The poller's look at what is in flight. */
#ifndef VGPU_STREAMS_COMPLETION_H
#define VGPU_STREAMS_COMPLETION_H

#include "streams/engine.h"

/* Looks at what is in flight on the device and calls done for each group that is done. */
typedef void vgpu_group_done(struct vgpu_process *p, uint32_t device, const struct vgpu_group *group,
			     const struct vgpu_busy *busy, uint64_t now_ns);
void vgpu_completion_poll(struct vgpu_process *p, uint32_t device, vgpu_group_done *done);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h), beside what is in flight (streams/engine.h). */
#ifndef VGPU_STREAMS_OWN_H
#define VGPU_STREAMS_OWN_H

#include "api/cuda_types.h"
#include "process/process.h"

struct vgpu_streams {
	uint32_t poller_sleeps;
	uint32_t poller_bell;
	uint64_t poller_until_ns; /* how long it sleeps at most, where that is long and it sleeps at all */
	CUcontext poller_context; /* current in the poller's thread */
};
_Static_assert(sizeof(struct vgpu_streams) <= VGPU_GATE_AT - VGPU_STREAMS_AT, "it has room");

static inline struct vgpu_streams *vgpu_streams(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_STREAMS_AT);
}

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h). */
#ifndef VGPU_GATE_OWN_H
#define VGPU_GATE_OWN_H

#include "process/process.h"
#include "tuning.h"

enum vgpu_gate_state {
	VGPU_GROUP_FREE = 0,
	VGPU_GROUP_BEGINS, /* a thread has the driver record its first event */
	VGPU_GROUP_OPEN,   /* another launch may join it */
	VGPU_GROUP_FULL,
};

/* Launches of one stream that follow each other, between two events. */
struct vgpu_gate_group {
	CUevent begin, end; /* of the stream's context; kept for the next one */
	uint64_t begun_ns;  /* when the first launch came */
	uint32_t state;
	uint32_t launches;
	uint32_t inside; /* of them: not back from the driver yet */
	uint32_t asked;	 /* a thread asks the driver about it: nobody joins */
};

struct vgpu_gate_stream {
	CUcontext context; /* NULL: this place is free */
	CUstream handle;   /* a name only: the stream may be no more */
	const void *thread; /* whose, of a thread's own stream */
	uint32_t device;
	uint32_t stalled; /* its work has not ended in VGPU_GATE_STALLED_NS: not waited for before it has */
	uint64_t launch_ns; /* what one took last */
	struct vgpu_gate_group group[2];
};

struct vgpu_gate_device {
	uint64_t launch_ns;  /* what one took of late in any stream */
	uint64_t counted_ns; /* vgpu_bucket_at_most; with the lock held */
};

/* Any thread changes all of it with the lock held, but for a group's events, which the thread makes that
 * begins it. Read without the lock: high, a stream's context, a device's launch_ns. */
struct vgpu_gate {
	uint32_t lock;
	uint32_t high; /* places at and above this one were never used */
	struct vgpu_gate_device device[VGPU_MAX_DEVICES];
	struct vgpu_gate_stream stream[VGPU_GATE_STREAMS];
};
_Static_assert(sizeof(struct vgpu_gate) <= VGPU_MEMORY_AT - VGPU_GATE_AT, "it has room");

static inline struct vgpu_gate *vgpu_gate(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_GATE_AT);
}

#endif

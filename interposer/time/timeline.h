/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which of the last milliseconds of a device a process has counted, so that what its streams do at
 * once counts once. Only the poller has to do with it. */
#ifndef VGPU_TIME_TIMELINE_H
#define VGPU_TIME_TIMELINE_H

#include <stdint.h>

#define VGPU_SPANS 32

struct vgpu_span {
	uint64_t from_ns, to_ns;
};

struct vgpu_timeline {
	uint32_t count;
	struct vgpu_span span[VGPU_SPANS]; /* apart from each other, the oldest first */
};

/* What was not counted before. */
struct vgpu_fresh {
	uint64_t ns; /* of all together */
	uint32_t count;
	struct vgpu_span span[VGPU_SPANS + 1];
};

/* Counts so much of the time between two times, of what is not counted yet the earliest. */
void vgpu_timeline_count(struct vgpu_timeline *timeline, uint64_t from_ns, uint64_t to_ns, uint64_t ns, struct vgpu_fresh *fresh);

/* The reverse, of what is counted. Returns how much there was. */
uint64_t vgpu_timeline_take(struct vgpu_timeline *timeline, uint64_t from_ns, uint64_t to_ns, uint64_t ns);

/* Leaves out all before a time. */
void vgpu_timeline_forget(struct vgpu_timeline *timeline, uint64_t until_ns);

/* How much between two times is not counted yet. */
uint64_t vgpu_timeline_room(const struct vgpu_timeline *timeline, uint64_t from_ns, uint64_t to_ns);

#endif

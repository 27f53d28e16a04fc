/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which of the last milliseconds of a device a process has counted, so that what its streams do at
 * once counts once. Only the poller has to do with it. */
#ifndef VGPU_TIME_INTERVALS_H
#define VGPU_TIME_INTERVALS_H

#include <stdint.h>

#define VGPU_INTERVALS 32

struct vgpu_interval {
	uint64_t from_ns, to_ns;
};

struct vgpu_intervals {
	uint32_t count;
	struct vgpu_interval interval[VGPU_INTERVALS]; /* apart from each other, the oldest first */
};

/* What was not counted before. */
struct vgpu_fresh {
	uint64_t ns; /* of all together */
	uint32_t count;
	struct vgpu_interval interval[VGPU_INTERVALS + 1];
};

/* Counts so much of the time between two times, of what is not counted yet the earliest. */
void vgpu_intervals_count(struct vgpu_intervals *intervals, uint64_t from_ns, uint64_t to_ns, uint64_t ns,
			  struct vgpu_fresh *fresh);

/* The reverse, of what is counted. Returns how much there was. */
uint64_t vgpu_intervals_take(struct vgpu_intervals *intervals, uint64_t from_ns, uint64_t to_ns, uint64_t ns);

/* Leaves out all before a time. */
void vgpu_intervals_forget(struct vgpu_intervals *intervals, uint64_t until_ns);

/* How much between two times is not counted yet. */
uint64_t vgpu_intervals_room(const struct vgpu_intervals *intervals, uint64_t from_ns, uint64_t to_ns);

#endif

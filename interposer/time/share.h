/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of a share of the GPU's time, on a word of the ledger and without a lock, so that a
 * process may be killed anywhere in it.
 *
 * A slice with P percent may keep the GPU busy for P ns in 100. free_at is the time from which on
 * that covers what was used: using b ns moves it b * 100 / P ns ahead. While it lies in the past
 * there is credit; work is let through as long as there is any, and what goes beyond it is owed
 * until time has caught up. Of unused credit no more than burst_ns of busy time is kept. */
#ifndef VGPU_TIME_SHARE_H
#define VGPU_TIME_SHARE_H

#include <stdint.h>

/* Bounds by how much a second may be above the share after a pause: 1 point. */
#define VGPU_SHARE_BURST_NS 10000000ull
/* After waiting for other slices' turns, more is kept: what was earned meanwhile, up to this. */
#define VGPU_SHARE_WAITED_NS 60000000ull

/* Whether there is something to hold back. */
static inline int vgpu_share_is_capped(uint32_t percent)
{
	return percent >= 1 && percent <= 99;
}

struct vgpu_share {
	uint64_t *free_at_ns;
	uint32_t percent; /* 1 to 99 */
	uint64_t burst_ns;
};

/* Takes busy time before it is used: what there is, need at least and want at most if want is more.
 * 0 when there is no credit; *from_ns then says from when on there will be. */
uint64_t vgpu_share_take(const struct vgpu_share *share, uint64_t now_ns, uint64_t need_ns, uint64_t want_ns,
			 uint64_t *from_ns);

/* Takes more, or gives some back: what was used beyond what was taken before. */
void vgpu_share_settle(const struct vgpu_share *share, uint64_t now_ns, int64_t more_ns);

/* The credit now in ns of busy time; negative is owed. */
int64_t vgpu_share_credit(const struct vgpu_share *share, uint64_t now_ns);

/* For how long there has been credit; 0: there is none. */
uint64_t vgpu_share_age(const struct vgpu_share *share, uint64_t now_ns);

#endif

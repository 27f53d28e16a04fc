/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of a cap, on a word of the ledger and without a lock, so that a process may be killed
 * anywhere in it.
 *
 * A slice of P percent may keep the GPU busy for P ns in 100. The word is the time from which on that covers
 * what was used: b ns more move it b * 100 / P ns ahead. Launches wait while it lies ahead of now. */
#ifndef VGPU_GATE_BUCKET_H
#define VGPU_GATE_BUCKET_H

#include <stdbool.h>
#include <stdint.h>

static inline bool vgpu_bucket_is_capped(uint32_t percent)
{
	return percent >= 1 && percent <= 99;
}

/* Charges busy_ns of GPU time to work that began at begun_ns. */
void vgpu_bucket_charge(uint64_t *word, uint32_t percent, uint64_t begun_ns, uint64_t now_ns,
			uint64_t busy_ns);

/* Streams that run at the same time share one charge: all together at most the time that has passed. Returns
 * the part of busy_ns to charge, and moves counted_ns on by it. counted_ns: time before it is charged
 * already; where nothing was in flight it begins anew at earliest_ns, the start of the oldest work that is
 * not charged. */
uint64_t vgpu_bucket_at_most(uint64_t *counted_ns, uint64_t earliest_ns, uint64_t now_ns, uint64_t busy_ns);

/* How long until the cap covers what was used; 0: it does. */
uint64_t vgpu_bucket_wait(const uint64_t *word, uint64_t now_ns);

/* How many launches a group has where one takes so long; 0: that is not known. */
uint32_t vgpu_bucket_launches(uint64_t launch_ns);

#endif

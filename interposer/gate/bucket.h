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

/* What began at begun_ns has kept the GPU busy for so long. */
void vgpu_bucket_charge(uint64_t *word, uint32_t percent, uint64_t begun_ns, uint64_t now_ns,
			uint64_t busy_ns);

/* What streams do at the same time is not to be charged for each of them: together no more than the time
 * that has passed. counted_ns: up to when time has been charged for, which begins anew where nothing was in
 * flight; earliest_ns: since when anything has been that is not charged for yet. What is to be charged of
 * busy_ns; counted_ns goes on by that. */
uint64_t vgpu_bucket_at_most(uint64_t *counted_ns, uint64_t earliest_ns, uint64_t now_ns, uint64_t busy_ns);

/* How long until the cap covers what was used; 0: it does. */
uint64_t vgpu_bucket_wait(const uint64_t *word, uint64_t now_ns);

/* How many launches a group has where one takes so long; 0: that is not known. */
uint32_t vgpu_bucket_launches(uint64_t launch_ns);

#endif

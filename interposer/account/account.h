/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The job's account: what all its processes hold on each device, in the ledger. */
#ifndef VGPU_ACCOUNT_ACCOUNT_H
#define VGPU_ACCOUNT_ACCOUNT_H

#include "account/own.h"

#include <stdbool.h>
#include <stdint.h>

/* Takes a slot for the process, whose identity is filled in. False when all slots live. */
bool vgpu_account_open(struct vgpu_process *p);

/* Charges the bytes if neither the step's nor the job's limit is passed by it. Most callers want what looks
 * for room before it refuses (account/reclaim.h). */
bool vgpu_account_try(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* Charges what the driver holds already, whatever the limits say. */
void vgpu_account_force(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* Gives back; never more than the process holds. */
void vgpu_account_give_back(struct vgpu_process *p, uint32_t device, uint64_t bytes);

/* Clears the slots of processes that have ended. When not asked to be thorough only now and then, and when a
 * child was waited for. */
void vgpu_account_sweep(struct vgpu_process *p, bool thorough);

/* The step's limit and what is left of it and of the job's. */
struct vgpu_view {
	uint64_t total_bytes;
	uint64_t free_bytes;
};
struct vgpu_view vgpu_account_view(struct vgpu_process *p, uint32_t device);
/* The same without looking for processes that have ended. */
struct vgpu_view vgpu_account_view_of_sums(struct vgpu_process *p, uint32_t device);

/* The bytes of the device's memory that this process holds. */
static inline uint64_t vgpu_account_held(const struct vgpu_process *p, uint32_t device)
{
	return __atomic_load_n(&vgpu_account(p)->held_bytes[device], __ATOMIC_RELAXED);
}

/* And what its calls that are in the driver may add to it: that is charged before it is taken off this. */
static inline uint64_t vgpu_account_may_take(const struct vgpu_process *p, uint32_t device)
{
	return __atomic_load_n(&vgpu_account(p)->may_take_bytes[device], __ATOMIC_ACQUIRE);
}

/* A sum of the ledger. Whatever was written there, it is no less than what this process holds. */
static inline uint64_t vgpu_account_sum(const struct vgpu_process *p, uint32_t device, const uint64_t *sums)
{
	uint64_t held = vgpu_account_held(p, device);
	uint64_t sum = __atomic_load_n(&sums[device], __ATOMIC_RELAXED);

	return sum > held ? sum : held;
}

static inline uint64_t vgpu_account_left(uint64_t limit, uint64_t used)
{
	return used < limit ? limit - used : 0;
}

/* The bytes that the process with this pid uses, by the ledger; false when no process of the job has it. */
bool vgpu_account_of_pid(struct vgpu_process *p, int32_t pid, uint32_t device, uint64_t *bytes);

#endif

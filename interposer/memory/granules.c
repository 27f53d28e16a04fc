/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory/granules.h"

#include "base/futex.h"
#include "base/table.h"
#include "memory/own.h"
#include "tuning.h"

#define MANAGED 1u

static uint64_t number_of(CUdeviceptr pointer)
{
	return pointer / VGPU_GRANULE_BYTES;
}

static struct vgpu_stripe *granule_stripe(struct vgpu_process *p, uint64_t number)
{
	return &vgpu_memory(p)->granules[number % VGPU_BLOCK_STRIPES];
}

/* True when the granule was not held. */
static bool hold_one(struct vgpu_process *p, const struct vgpu_entry *first)
{
	struct vgpu_stripe *stripe = granule_stripe(p, first->key);
	struct vgpu_entry *held;

	vgpu_mutex_lock(&stripe->mutex, VGPU_RANK_GRANULES);
	held = vgpu_table_find(&stripe->entries, first->key);
	if (held != NULL)
		held->count++;
	else
		/* Without memory for it the charge stays until the process ends. */
		vgpu_table_put(&stripe->entries, first);
	if (held == NULL && first->owner == MANAGED)
		__atomic_add_fetch(&vgpu_memory(p)->managed_bytes[first->device], first->bytes,
				   __ATOMIC_RELAXED);
	vgpu_mutex_unlock(&stripe->mutex);
	return held == NULL;
}

uint64_t vgpu_granules_hold(struct vgpu_process *p, CUdeviceptr pointer, uint64_t bytes, uint32_t device,
			    bool managed)
{
	struct vgpu_entry first = {
		.bytes = VGPU_GRANULE_BYTES, .device = device, .count = 1, .owner = managed ? MANAGED : 0};
	uint64_t last = number_of(pointer + bytes - 1);
	uint64_t taken = 0;

	for (first.key = number_of(pointer); first.key <= last; first.key++)
		taken += hold_one(p, &first) ? VGPU_GRANULE_BYTES : 0;
	return taken;
}

static uint64_t leave_one(struct vgpu_process *p, uint64_t number)
{
	struct vgpu_stripe *stripe = granule_stripe(p, number);
	struct vgpu_entry gone = {0};
	struct vgpu_entry *held;

	vgpu_mutex_lock(&stripe->mutex, VGPU_RANK_GRANULES);
	held = vgpu_table_find(&stripe->entries, number);
	if (held != NULL && --held->count == 0)
		vgpu_table_take(&stripe->entries, number, &gone);
	if (gone.owner == MANAGED)
		__atomic_sub_fetch(&vgpu_memory(p)->managed_bytes[gone.device], gone.bytes, __ATOMIC_RELAXED);
	vgpu_mutex_unlock(&stripe->mutex);
	return gone.bytes;
}

uint64_t vgpu_granules_leave(struct vgpu_process *p, CUdeviceptr pointer, uint64_t bytes)
{
	uint64_t last = number_of(pointer + bytes - 1);
	uint64_t given = 0;

	for (uint64_t number = number_of(pointer); number <= last; number++)
		given += leave_one(p, number);
	return given;
}

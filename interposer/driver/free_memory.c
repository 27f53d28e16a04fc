/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver/free_memory.h"

#include "account/account.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "driver/own.h"
#include "tuning.h"

/* sequence is odd while somebody writes: then there is nothing to read, and nobody else writes. */
static bool next_sequence(struct vgpu_free_memory *memory, uint32_t from)
{
	return __atomic_compare_exchange_n(&memory->sequence, &from, from + 1, 0, __ATOMIC_ACQ_REL,
					   __ATOMIC_RELAXED);
}

bool vgpu_free_memory_recall(struct vgpu_process *p, CUcontext context, struct vgpu_recalled *recalled)
{
	struct vgpu_free_memory *memory = &vgpu_driver(p)->free_memory;
	uint32_t sequence = __atomic_load_n(&memory->sequence, __ATOMIC_ACQUIRE);
	uint64_t then, now;

	if (context == NULL || sequence % 2 != 0 ||
	    __atomic_load_n(&memory->context, __ATOMIC_ACQUIRE) != context)
		return false;
	/* Acquired one by one, so that sequence is looked at after them. */
	recalled->device = __atomic_load_n(&memory->device, __ATOMIC_ACQUIRE);
	recalled->free_bytes = __atomic_load_n(&memory->free_bytes, __ATOMIC_ACQUIRE);
	recalled->total_bytes = __atomic_load_n(&memory->total_bytes, __ATOMIC_ACQUIRE);
	then = __atomic_load_n(&memory->held_bytes, __ATOMIC_ACQUIRE);
	if (vgpu_now_ns() - __atomic_load_n(&memory->asked_ns, __ATOMIC_ACQUIRE) >=
		    VGPU_FREE_MEMORY_GOOD_NS ||
	    GET(memory->sequence) != sequence)
		return false;
	now = vgpu_account_held(p, (uint32_t)recalled->device);
	/* The account drops freed memory a moment after the driver has it: it is not added here, as it could
	 * be in the driver's figure already. */
	recalled->more_since = now < then;
	if (now > then)
		recalled->free_bytes -= now - then < recalled->free_bytes ? now - then : recalled->free_bytes;
	return true;
}

struct vgpu_free_memory_query vgpu_free_memory_query(struct vgpu_process *p, int device)
{
	return (struct vgpu_free_memory_query){
		.sequence = __atomic_load_n(&vgpu_driver(p)->free_memory.sequence, __ATOMIC_ACQUIRE),
		.device = device,
		.held_bytes = device >= 0 ? vgpu_account_held(p, (uint32_t)device) : 0,
	};
}

void vgpu_free_memory_remember(struct vgpu_process *p, const struct vgpu_free_memory_query *query,
			       CUcontext context, uint64_t free_bytes, uint64_t total_bytes)
{
	struct vgpu_free_memory *memory = &vgpu_driver(p)->free_memory;
	uint32_t sequence = query->sequence;
	int device = query->device;

	/* Memory that other threads allocate meanwhile may be in the figure or not. */
	if (context == NULL || device < 0 || vgpu_account_may_take(p, (uint32_t)device) != 0 ||
	    vgpu_account_held(p, (uint32_t)device) != query->held_bytes || sequence % 2 != 0 ||
	    !next_sequence(memory, sequence))
		return;
	__atomic_store_n(&memory->context, context, __ATOMIC_RELEASE);
	__atomic_store_n(&memory->device, device, __ATOMIC_RELEASE);
	__atomic_store_n(&memory->free_bytes, free_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&memory->total_bytes, total_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&memory->held_bytes, query->held_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&memory->asked_ns, vgpu_now_ns(), __ATOMIC_RELEASE);
	if (next_sequence(memory, sequence + 1))
		return;
	/* A context has ended meanwhile, perhaps this one. */
	__atomic_store_n(&memory->context, NULL, __ATOMIC_RELEASE);
	__atomic_add_fetch(&memory->sequence, 1, __ATOMIC_RELEASE);
}

void vgpu_free_memory_forget(struct vgpu_process *p)
{
	__atomic_store_n(&vgpu_driver(p)->free_memory.context, NULL, __ATOMIC_RELEASE);
	__atomic_add_fetch(&vgpu_driver(p)->free_memory.sequence, 2, __ATOMIC_ACQ_REL);
}

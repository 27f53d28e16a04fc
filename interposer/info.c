/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "info.h"

#include "futex.h"

#define GOOD_FOR_NS 1000000u

#define GET(field) __atomic_load_n(&(field), __ATOMIC_RELAXED)

/* turn is odd while somebody writes: then there is nothing to read, and nobody else writes. */
uint32_t vgpu_info_turn(struct vgpu_process *p)
{
	return __atomic_load_n(&p->info.turn, __ATOMIC_ACQUIRE);
}

static bool take_turn(struct vgpu_info *info, uint32_t from)
{
	return __atomic_compare_exchange_n(&info->turn, &from, from + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool vgpu_info_recall(struct vgpu_process *p, CUcontext context, int *device, uint64_t *free_bytes,
		      uint64_t *total_bytes)
{
	struct vgpu_info *info;
	uint64_t then, now;
	uint32_t turn;

	if (context == NULL)
		return false;
	info = &p->info;
	turn = vgpu_info_turn(p);
	if (turn % 2 != 0 || __atomic_load_n(&info->context, __ATOMIC_ACQUIRE) != context)
		return false;
	/* Acquired one by one, so that turn is looked at after them. */
	*device = __atomic_load_n(&info->device, __ATOMIC_ACQUIRE);
	*free_bytes = __atomic_load_n(&info->free_bytes, __ATOMIC_ACQUIRE);
	*total_bytes = __atomic_load_n(&info->total_bytes, __ATOMIC_ACQUIRE);
	then = __atomic_load_n(&info->held_bytes, __ATOMIC_ACQUIRE);
	if (vgpu_now_ns() - __atomic_load_n(&info->asked_ns, __ATOMIC_ACQUIRE) >= GOOD_FOR_NS || GET(info->turn) != turn)
		return false;
	now = GET(p->held_bytes[*device]);
	if (now > then)
		*free_bytes -= now - then < *free_bytes ? now - then : *free_bytes;
	else
		*free_bytes += then - now;
	return true;
}

void vgpu_info_remember(struct vgpu_process *p, uint32_t turn, CUcontext context, int device, uint64_t free_bytes,
			uint64_t total_bytes)
{
	struct vgpu_info *info = &p->info;

	if (context == NULL || device < 0 || turn % 2 != 0 || !take_turn(info, turn))
		return;
	__atomic_store_n(&info->context, context, __ATOMIC_RELEASE);
	__atomic_store_n(&info->device, device, __ATOMIC_RELEASE);
	__atomic_store_n(&info->free_bytes, free_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&info->total_bytes, total_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&info->held_bytes, GET(p->held_bytes[device]), __ATOMIC_RELEASE);
	__atomic_store_n(&info->asked_ns, vgpu_now_ns(), __ATOMIC_RELEASE);
	if (take_turn(info, turn + 1))
		return;
	/* A context has ended meanwhile, perhaps this one. */
	__atomic_store_n(&info->context, NULL, __ATOMIC_RELEASE);
	__atomic_add_fetch(&info->turn, 1, __ATOMIC_RELEASE);
}

void vgpu_info_forget(struct vgpu_process *p)
{
	__atomic_store_n(&p->info.context, NULL, __ATOMIC_RELEASE);
	__atomic_add_fetch(&p->info.turn, 2, __ATOMIC_ACQ_REL);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver/info.h"

#include "base/atomics.h"
#include "base/futex.h"

#define GOOD_FOR_NS 1000000u

/* turn is odd while somebody writes: then there is nothing to read, and nobody else writes. */
static bool take_turn(struct vgpu_info *info, uint32_t from)
{
	return __atomic_compare_exchange_n(&info->turn, &from, from + 1, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

bool vgpu_info_recall(struct vgpu_process *p, CUcontext context, struct vgpu_recalled *recalled)
{
	struct vgpu_info *info = &p->info;
	uint32_t turn = __atomic_load_n(&info->turn, __ATOMIC_ACQUIRE);
	uint64_t then, now;

	if (context == NULL || turn % 2 != 0 || __atomic_load_n(&info->context, __ATOMIC_ACQUIRE) != context)
		return false;
	/* Acquired one by one, so that turn is looked at after them. */
	recalled->device = __atomic_load_n(&info->device, __ATOMIC_ACQUIRE);
	recalled->free_bytes = __atomic_load_n(&info->free_bytes, __ATOMIC_ACQUIRE);
	recalled->total_bytes = __atomic_load_n(&info->total_bytes, __ATOMIC_ACQUIRE);
	then = __atomic_load_n(&info->held_bytes, __ATOMIC_ACQUIRE);
	if (vgpu_now_ns() - __atomic_load_n(&info->asked_ns, __ATOMIC_ACQUIRE) >= GOOD_FOR_NS || GET(info->turn) != turn)
		return false;
	now = GET(p->held_bytes[recalled->device]);
	/* What is freed is given back a moment after the driver has it: it is not added, which could be
	 * twice. */
	recalled->more_since = now < then;
	if (now > then)
		recalled->free_bytes -= now - then < recalled->free_bytes ? now - then : recalled->free_bytes;
	return true;
}

struct vgpu_question vgpu_info_ask(struct vgpu_process *p, int device)
{
	return (struct vgpu_question){
		.turn = __atomic_load_n(&p->info.turn, __ATOMIC_ACQUIRE),
		.device = device,
		.held_bytes = device >= 0 ? GET(p->held_bytes[device]) : 0,
	};
}

void vgpu_info_remember(struct vgpu_process *p, const struct vgpu_question *question, CUcontext context,
			uint64_t free_bytes, uint64_t total_bytes)
{
	struct vgpu_info *info = &p->info;
	uint32_t turn = question->turn;
	int device = question->device;

	/* What other threads allocate meanwhile may be in the figure or not. */
	if (context == NULL || device < 0 || __atomic_load_n(&p->may_take_bytes[device], __ATOMIC_ACQUIRE) != 0 ||
	    GET(p->held_bytes[device]) != question->held_bytes || turn % 2 != 0 || !take_turn(info, turn))
		return;
	__atomic_store_n(&info->context, context, __ATOMIC_RELEASE);
	__atomic_store_n(&info->device, device, __ATOMIC_RELEASE);
	__atomic_store_n(&info->free_bytes, free_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&info->total_bytes, total_bytes, __ATOMIC_RELEASE);
	__atomic_store_n(&info->held_bytes, question->held_bytes, __ATOMIC_RELEASE);
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

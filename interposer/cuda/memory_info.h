/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds MEM_INFO and TOTAL_MEM: what the program sees. */
#ifndef VGPU_CUDA_MEMORY_INFO_H
#define VGPU_CUDA_MEMORY_INFO_H

#include "account/account.h"
#include "base/arithmetic.h"
#include "context/overhead.h"
#include "cuda/memory.h"
#include "cuda/wrap.h"
#include "driver/device.h"
#include "driver/free_memory.h"
#include "pools/table.h"

/* The functions without _v2 answer with 32 bits. */
#define STORE(pointer, value)                                                                             \
	(*(pointer) = (value) > (__typeof__(*(pointer)))-1 ? (__typeof__(*(pointer)))-1 : (__typeof__(*(pointer)))(value))

/* The memory of a device as the program sees it, when the pools are settled; false: the driver's own
 * answer stands. */
static bool view_of_device(struct vgpu_process *p, int device, struct vgpu_view *view)
{
	if (p == NULL || device == VGPU_NO_DEVICE)
		return false;
	*view = (struct vgpu_view){0};
	if (device != VGPU_NOT_GRANTED)
		*view = vgpu_account_view(p, (uint32_t)device);
	return true;
}

/* The free memory of the answer is at most that of the driver. */
#define TELL(view, driver_free, driver_total, free_out, total_out)                               \
	do {                                                                                     \
		if ((free_out) != NULL)                                                          \
			STORE(free_out, vgpu_smaller((view).free_bytes, driver_free));                  \
		if ((total_out) != NULL)                                                         \
			STORE(total_out, vgpu_smaller((view).total_bytes, driver_total));               \
	} while (0)

/* How a question is answered: with what the driver said last, or by asking it. */
struct memory_info {
	CUcontext context;
	bool recalled;
	struct vgpu_recalled said;
	struct vgpu_free_memory_query query;
	struct vgpu_view view;
};

/* False: the driver is to be asked. whole: the program wants both figures. */
static bool recalls(struct vgpu_process *p, bool whole, struct memory_info *info)
{
	if (p == NULL)
		return false;
	info->context = current_context();
	vgpu_pools_settle_all(p);
	vgpu_overhead_catch_up(p);
	info->recalled = whole && vgpu_free_memory_recall(p, info->context, &info->said) &&
			 view_of_device(p, info->said.device, &info->view) &&
			 (!info->said.more_since || info->view.free_bytes <= info->said.free_bytes);
	if (!info->recalled) {
		info->said.device = vgpu_device_of_current(p);
		info->query = vgpu_free_memory_query(p, info->said.device);
	}
	return info->recalled;
}

/* After the driver's answer, which is remembered: whether the program sees something else. */
static bool answered(struct vgpu_process *p, bool whole, struct memory_info *info, uint64_t free_bytes,
		     uint64_t total_bytes)
{
	if (info->recalled)
		return true;
	info->said.free_bytes = free_bytes;
	info->said.total_bytes = total_bytes;
	if (whole)
		vgpu_free_memory_remember(p, &info->query, info->context, free_bytes, total_bytes);
	return view_of_device(p, info->said.device, &info->view);
}

/* The answer of a function with 32 bits is not remembered. */
#define REMEMBERED(out) (sizeof(*(out)) == sizeof(uint64_t))
#define VALUE(out) ((out) != NULL ? *(out) : 0)
#define WRAP_MEM_INFO(symbol, params, args, free_out, total_out)                                \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct memory_info info;                                                        \
		bool whole = (free_out) != NULL && (total_out) != NULL;                         \
		CUresult result = recalls(p, whole, &info) ? CUDA_SUCCESS : real args;          \
		if (p != NULL && result == CUDA_SUCCESS && ANSWERED(free_out, total_out))       \
			TELL(info.view, info.said.free_bytes, info.said.total_bytes, free_out, total_out); \
		return result;                                                                  \
	}
#define ANSWERED(free_out, total_out) \
	answered(p, whole && REMEMBERED(free_out), &info, info.recalled ? 0 : VALUE(free_out), info.recalled ? 0 : VALUE(total_out))

#define WRAP_TOTAL_MEM(symbol, params, args, bytes, ordinal)                                    \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct vgpu_view view;                                                          \
		CUresult result = real args;                                                    \
		bool shown = result == CUDA_SUCCESS && (bytes) != NULL && p != NULL;             \
		if (shown && view_of_device(p, vgpu_device_of_ordinal(p, ordinal), &view))              \
			STORE(bytes, vgpu_smaller(view.total_bytes, *(bytes)));                        \
		return result;                                                                  \
	}

#endif

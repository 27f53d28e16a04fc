/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds MEM_INFO and TOTAL_MEM: what the program is told. */
#ifndef VGPU_CUDA_MEMORY_INFO_H
#define VGPU_CUDA_MEMORY_INFO_H

#include "account/account.h"
#include "context/overhead.h"
#include "cuda/memory.h"
#include "cuda/wrap.h"
#include "driver/device.h"
#include "driver/free_memory.h"
#include "pools/pools.h"

/* The functions without _v2 answer with 32 bits. */
#define STORE(pointer, value)                                                                             \
	(*(pointer) = (value) > (__typeof__(*(pointer)))-1 ? (__typeof__(*(pointer)))-1 : (__typeof__(*(pointer)))(value))

/* What the program is told about a device, when the pools are settled; false when the driver's own
 * answer stands. */
static bool view_of(struct vgpu_process *p, int device, struct vgpu_view *view)
{
	if (p == NULL || device == VGPU_NO_DEVICE)
		return false;
	*view = (struct vgpu_view){0};
	if (device != VGPU_NOT_GRANTED)
		*view = vgpu_account_view(p, (uint32_t)device);
	return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* What is left is no more than what the driver has free. */
#define TELL(view, driver_free, driver_total, free_out, total_out)                               \
	do {                                                                                     \
		if ((free_out) != NULL)                                                          \
			STORE(free_out, least((view).free_bytes, driver_free));                  \
		if ((total_out) != NULL)                                                         \
			STORE(total_out, least((view).total_bytes, driver_total));               \
	} while (0)

#define WRAP_MEM_INFO(symbol, params, args, free_out, total_out)                                        \
	WRAP(symbol, params)                                                                            \
	{                                                                                               \
		REAL_OR_RETURN(symbol);                                                                 \
		struct vgpu_process *p = attached();                                                    \
		CUcontext context = p != NULL ? current_context() : NULL;                               \
		bool both = (free_out) != NULL && (total_out) != NULL;                                  \
		struct vgpu_recalled recalled;                                                          \
		struct vgpu_free_memory_query query;                                                          \
		struct vgpu_view view;                                                                  \
		CUresult result;                                                                        \
		int device;                                                                             \
                                                                                                        \
		if (p == NULL)                                                                          \
			return real args;                                                               \
		vgpu_pools_settle_all(p);                                                               \
		vgpu_overhead_catch_up(p);                                                                \
		if (both && vgpu_free_memory_recall(p, context, &recalled) && view_of(p, recalled.device, &view) && \
		    (!recalled.more_since || view.free_bytes <= recalled.free_bytes)) {                 \
			TELL(view, recalled.free_bytes, recalled.total_bytes, free_out, total_out);     \
			return CUDA_SUCCESS;                                                            \
		}                                                                                       \
		device = vgpu_device_of_current(p);                                                     \
		query = vgpu_free_memory_query(p, device);                                                    \
		result = real args;                                                                     \
		if (result != CUDA_SUCCESS)                                                             \
			return result;                                                                  \
		/* Not from a function that answers with 32 bits. */                                    \
		if (both && sizeof(*(free_out)) == sizeof(uint64_t))                                    \
			vgpu_free_memory_remember(p, &query, context, *(free_out), *(total_out));           \
		if (view_of(p, device, &view))                                                          \
			TELL(view, *(free_out), *(total_out), free_out, total_out);                     \
		return result;                                                                          \
	}

#define WRAP_TOTAL_MEM(symbol, params, args, bytes, ordinal)                                     \
	WRAP(symbol, params)                                                                     \
	{                                                                                        \
		REAL_OR_RETURN(symbol);                                                          \
		struct vgpu_process *p = attached();                                             \
		struct vgpu_view view;                                                           \
		CUresult result = real args;                                                     \
                                                                                                 \
		if (result == CUDA_SUCCESS && (bytes) != NULL && p != NULL &&                    \
		    view_of(p, vgpu_device_of_ordinal(p, ordinal), &view))                       \
			STORE(bytes, least(view.total_bytes, *(bytes)));                         \
		return result;                                                                   \
	}

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds MEM_INFO and TOTAL_MEM: what the program is told. */
#ifndef VGPU_WRAP_INFO_H
#define VGPU_WRAP_INFO_H

#include "account.h"
#include "device.h"
#include "pools.h"
#include "wrap.h"

/* The functions without _v2 answer with 32 bits. */
#define STORE(pointer, value)                                                                             \
	(*(pointer) = (value) > (__typeof__(*(pointer)))-1 ? (__typeof__(*(pointer)))-1 : (__typeof__(*(pointer)))(value))

/* What the program is told about a device; false when the driver's own answer stands. */
static bool view_of(struct vgpu_process *p, int device, struct vgpu_view *view)
{
	if (p == NULL || device == VGPU_NO_DEVICE)
		return false;
	*view = (struct vgpu_view){0};
	vgpu_pools_settle_all(p);
	if (device != VGPU_NOT_GRANTED)
		*view = vgpu_account_view(p, (uint32_t)device);
	return true;
}

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

#define WRAP_MEM_INFO(symbol, params, args, free_out, total_out)                                 \
	WRAP(symbol, params)                                                                     \
	{                                                                                        \
		REAL_OR_RETURN(symbol);                                                          \
		struct vgpu_process *p = attached();                                             \
		struct vgpu_view view;                                                           \
		CUresult result = real args;                                                     \
                                                                                                 \
		if (result != CUDA_SUCCESS || p == NULL || !view_of(p, vgpu_device_of_current(p), &view)) \
			return result;                                                           \
		if ((free_out) != NULL)                                                          \
			STORE(free_out, least(view.free_bytes, *(free_out)));                    \
		if ((total_out) != NULL)                                                         \
			STORE(total_out, least(view.total_bytes, *(total_out)));                 \
		return result;                                                                   \
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

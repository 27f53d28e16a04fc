/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds COPY and BESIDE: what moves memory, or waits. */
#ifndef VGPU_CUDA_COPY_H
#define VGPU_CUDA_COPY_H

#include "cuda/launch.h"

static bool copy_enter(struct vgpu_process *p, struct vgpu_launch *launch, CUstream stream,
		       struct vgpu_copied copied)
{
	launch->engine = NULL;
	if (copied.bytes >= LONG_BYTES)
		return vgpu_gate_enter(p, launch, stream, operation_of(OPERATION_COPY, copied.bytes),
				       copied.shape, VGPU_PLACES_OTHER);
	if (copied.beside_bytes >= LONG_BYTES)
		vgpu_gate_beside(p, stream);
	return true;
}

#define WRAP_COPY(symbol, params, args, copied, stream) \
	WRAP_GATED(symbol, params, args, true, copy_enter(p, &launch, stream, copied))

/* What the rows say of a copy. */
#define PLAIN(to, from, bytes) vgpu_copied_rows(p, VGPU_END_UNIFIED(to), VGPU_END_UNIFIED(from), bytes, 1, 1)
#define ON_DEVICE(to, from, bytes) vgpu_copied_rows(p, VGPU_END_DEVICE(to), VGPU_END_DEVICE(from), bytes, 1, 1)
#define TO_ARRAY(from, bytes) vgpu_copied_rows(p, VGPU_END_ARRAY, VGPU_END_DEVICE(from), bytes, 1, 1)
#define FROM_ARRAY(to, bytes) vgpu_copied_rows(p, VGPU_END_DEVICE(to), VGPU_END_ARRAY, bytes, 1, 1)
#define OF_ARRAYS(bytes) vgpu_copied_rows(p, VGPU_END_ARRAY, VGPU_END_ARRAY, bytes, 1, 1)
#define LIST(to, from, bytes, count) vgpu_copied_list(p, to, from, bytes, count)
#define BOXES(list, count) vgpu_copied_boxes(p, list, count)

/* Those that are described by a struct, of which there are several with fields of the same names. */
#define RECTANGLE(c)                                                                                          \
	((c) == NULL ? (struct vgpu_copied){0}                                                                \
		     : vgpu_copied_rows(p, END((c)->dst, RECTANGLE_AT(c, dst)), END((c)->src, RECTANGLE_AT(c, src)), \
					(c)->WidthInBytes, (c)->Height, 1))
#define BOX(c)                                                                                                \
	((c) == NULL ? (struct vgpu_copied){0}                                                                \
		     : vgpu_copied_rows(p, END((c)->dst, BOX_AT(c, dst)), END((c)->src, BOX_AT(c, src)),      \
					(c)->WidthInBytes, (c)->Height, (c)->Depth))
#define END(side, at) ((struct vgpu_end){side##MemoryType, at})
#define RECTANGLE_AT(c, side) ((c)->side##Device + (CUdeviceptr)(c)->side##Y * (c)->side##Pitch + (c)->side##XInBytes)
#define BOX_AT(c, side)                                                                                       \
	((c)->side##Device + ((CUdeviceptr)(c)->side##Z * (c)->side##Height + (c)->side##Y) * (c)->side##Pitch + \
	 (c)->side##XInBytes)

/* What keeps a stream waiting and not the GPU busy. It is said before: the next launch comes behind it. */
#define WRAP_BESIDE(symbol, params, args, stream, bytes)                                      \
	static __attribute__((noinline)) CUresult launch_##symbol params                      \
	{                                                                                     \
		REAL_OR_RETURN(symbol);                                                       \
		struct vgpu_process *p = attached();                                          \
                                                                                              \
		if (p != NULL && vgpu_gate_is_shut(p) && (bytes) >= LONG_BYTES)               \
			vgpu_gate_beside(p, stream);                                          \
		return real args;                                                             \
	}                                                                                     \
	WRAP_QUICKLY(symbol, params, args, !vgpu_gate_is_shut(p), launch_##symbol)

#endif

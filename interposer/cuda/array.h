/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds ARRAY_CREATE, ARRAY_DESTROY and MIPMAP_CREATE. */
#ifndef VGPU_CUDA_ARRAY_H
#define VGPU_CUDA_ARRAY_H

#include "base/table.h"
#include "cuda/memory.h"
#include "memory/array.h"

#define CREATE_ARRAY(symbol, params, args, array, shape, levels)                                \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		REAL_OR_RETURN(symbol);                                                         \
		CUDA_ARRAY3D_DESCRIPTOR widest = VGPU_SHAPE(shape);                             \
		CHARGE_OR_RETURN(charge_after_overhead(&charge, vgpu_array_bytes(&widest, levels))); \
		CUresult result = real args;                                                    \
                                                                                                \
		return result == CUDA_SUCCESS ? put_block(&charge, vgpu_array_key(*(array)), VGPU_BLOCK_PLAIN) : not_made(&charge, result); \
	}

#define WRAP_ARRAY_CREATE(symbol, params, args, array, shape) CREATE_ARRAY(symbol, params, args, array, shape, 0)
#define WRAP_MIPMAP_CREATE(symbol, params, args, array, shape, levels) \
	CREATE_ARRAY(symbol, params, args, array, shape, (levels) > 0 ? (levels) : 1)

/* Whether it is one that is charged. */
static bool array_leaves(struct vgpu_process *p, const void *array, struct vgpu_entry *block)
{
	if (p == NULL || !vgpu_blocks_take(p, vgpu_array_key(array), block))
		return false;
	vgpu_array_leaves(p, array);
	return true;
}

static CUresult array_left(struct vgpu_process *p, const void *array, const struct vgpu_entry *block,
			   CUresult result)
{
	if (result == CUDA_SUCCESS) {
		vgpu_blocks_ended(p, block);
		vgpu_array_left(p, array);
	} else {
		vgpu_blocks_put_back(p, block);
		vgpu_array_stays(p, array);
	}
	return result;
}

#define WRAP_ARRAY_DESTROY(symbol, params, args, array)                                         \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct vgpu_entry block;                                                        \
		bool ours = array_leaves(p, array, &block);                                     \
		CUresult result = real args;                                                    \
                                                                                                \
		return ours ? array_left(p, array, &block, result) : result;                    \
	}

#endif

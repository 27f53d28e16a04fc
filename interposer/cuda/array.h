/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds ARRAY_CREATE, ARRAY_DESTROY and MIPMAP_CREATE. */
#ifndef VGPU_CUDA_ARRAY_H
#define VGPU_CUDA_ARRAY_H

#include "cuda/memory.h"
#include "memory/array.h"

#define CREATE_ARRAY(symbol, params, args, array, shape, levels)                                     \
	WRAP(symbol, params)                                                                         \
	{                                                                                            \
		REAL_OR_RETURN(symbol);                                                              \
		CUDA_ARRAY3D_DESCRIPTOR widest = VGPU_SHAPE(shape);                                  \
		struct vgpu_charge charge;                                                           \
		CUresult result = charge_after_overhead(&charge, vgpu_array_bytes(&widest, levels));   \
                                                                                                     \
		if (result != CUDA_SUCCESS)                                                          \
			return result;                                                               \
		result = real args;                                                                  \
		if (result == CUDA_SUCCESS)                                                          \
			return keep(&charge, vgpu_array_key(*(array)), VGPU_BLOCK_PLAIN);           \
		vgpu_charge_cancel(&charge);                                                         \
		return result;                                                                       \
	}

#define WRAP_ARRAY_CREATE(symbol, params, args, array, shape) CREATE_ARRAY(symbol, params, args, array, shape, 0)
#define WRAP_MIPMAP_CREATE(symbol, params, args, array, shape, levels) \
	CREATE_ARRAY(symbol, params, args, array, shape, (levels) > 0 ? (levels) : 1)

#define WRAP_ARRAY_DESTROY(symbol, params, args, array)                                    \
	WRAP(symbol, params)                                                               \
	{                                                                                  \
		REAL_OR_RETURN(symbol);                                                    \
		struct vgpu_process *p = attached();                                       \
		struct vgpu_entry block;                                                   \
		bool ours = p != NULL && vgpu_blocks_take(p, vgpu_array_key(array), &block); \
		CUresult result;                                                           \
                                                                                           \
		if (ours)                                                                  \
			vgpu_array_leaves(p, array);                                       \
		result = real args;                                                        \
		if (ours && result == CUDA_SUCCESS) {                                      \
			vgpu_blocks_ended(p, &block);                                      \
			vgpu_array_left(p, array);                                         \
		} else if (ours) {                                                         \
			vgpu_blocks_put_back(p, &block);                                   \
			vgpu_array_stays(p, array);                                        \
		}                                                                          \
		return result;                                                             \
	}

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arrays: how large one will be, and what cuMemMapArrayAsync has put into sparse ones. */
#ifndef VGPU_MEMORY_ARRAY_H
#define VGPU_MEMORY_ARRAY_H

#include "process/process.h"

/* The driver has several descriptors; this is the widest of them. A missing one is all zeros. */
static inline CUDA_ARRAY3D_DESCRIPTOR vgpu_shape_2d_v1(const CUDA_ARRAY_DESCRIPTOR_v1 *d)
{
	return d == NULL ? (CUDA_ARRAY3D_DESCRIPTOR){0}
			 : (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
}

static inline CUDA_ARRAY3D_DESCRIPTOR vgpu_shape_2d(const CUDA_ARRAY_DESCRIPTOR *d)
{
	return d == NULL ? (CUDA_ARRAY3D_DESCRIPTOR){0}
			 : (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
}

static inline CUDA_ARRAY3D_DESCRIPTOR vgpu_shape_3d_v1(const CUDA_ARRAY3D_DESCRIPTOR_v1 *d)
{
	return d == NULL ? (CUDA_ARRAY3D_DESCRIPTOR){0}
			 : (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, d->Depth,
						     d->Format, d->NumChannels, d->Flags};
}

static inline CUDA_ARRAY3D_DESCRIPTOR vgpu_shape_3d(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d == NULL ? (CUDA_ARRAY3D_DESCRIPTOR){0} : *d;
}

#define VGPU_SHAPE(descriptor)                                          \
	_Generic((descriptor),                                          \
		const CUDA_ARRAY_DESCRIPTOR_v1 *: vgpu_shape_2d_v1,     \
		const CUDA_ARRAY_DESCRIPTOR *: vgpu_shape_2d,           \
		const CUDA_ARRAY3D_DESCRIPTOR_v1 *: vgpu_shape_3d_v1,   \
		const CUDA_ARRAY3D_DESCRIPTOR *: vgpu_shape_3d)(descriptor)

uint64_t vgpu_array_element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape);

/* The bytes that such an array takes of the current context's device, 0 for sparse and deferred ones.
 * levels: 0 for an array that is not mipmapped. */
uint64_t vgpu_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, uint32_t levels);

/* Its key among the blocks: an odd number, which no address of memory is. */
static inline uint64_t vgpu_array_key(const void *array)
{
	return (uint64_t)(uintptr_t)array | 1;
}

/* cuMemMapArrayAsync has done what the list says. */
void vgpu_array_mapped(struct vgpu_process *p, const CUarrayMapInfo *list, uint32_t count, CUcontext context);

/* An array is about to be destroyed, and what it maps with it; then it was, or it was not. */
void vgpu_array_leaves(struct vgpu_process *p, const void *array);
void vgpu_array_left(struct vgpu_process *p, const void *array);
void vgpu_array_stays(struct vgpu_process *p, const void *array);

/* The context is gone, with all its arrays. */
void vgpu_array_drop_context(struct vgpu_process *p, CUcontext context);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arrays, mipmapped, sparse and deferred ones too. The memory of an array is a block that no pointer
 * of the program leads to. Rows are padded to 512 bytes; levels follow each other. */
#include "drv.h"

#include <stdlib.h>

#define ROW_ALIGN 512
#define LATER (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* A part of a sparse array and the memory that is mapped to it. */
struct part {
	struct part *next;
	CUarrayMapInfo at;
	struct sim_vmm *vmm;
};

struct array {
	struct array *next;
	CUcontext ctx;
	bool mipmap;
	CUDA_ARRAY3D_DESCRIPTOR shape;
	uint64_t bytes;
	CUdeviceptr base; /* 0: mapped later */
	struct part *parts;
};

static struct array *arrays;

static bool is_layered(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	return (shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
}

static uint64_t at_least_1(uint64_t value)
{
	return value > 0 ? value : 1;
}

/* 0 when it is not one that the driver makes. */
static uint64_t bytes_of(const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels)
{
	uint64_t element, bytes = 0;

	switch (shape->Format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		element = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		element = 2;
		break;
	case CU_AD_FORMAT_FLOAT:
		element = 4;
		break;
	default:
		return 0;
	}
	if (shape->NumChannels != 1 && shape->NumChannels != 2 && shape->NumChannels != 4)
		return 0;
	if (shape->Width == 0 || shape->Width > 1u << 20 || shape->Height > 1u << 20 ||
	    shape->Depth > 1u << 20)
		return 0;
	for (unsigned i = 0; i < levels && i < 32; i++) {
		uint64_t depth = is_layered(shape) ? shape->Depth : shape->Depth >> i;

		bytes += sim_round_up(at_least_1(shape->Width >> i) * element * shape->NumChannels,
				      ROW_ALIGN) *
			 at_least_1(shape->Height >> i) * at_least_1(depth);
	}
	return bytes;
}

static CUresult create(struct array **out, const CUDA_ARRAY3D_DESCRIPTOR *shape, unsigned levels, bool mipmap)
{
	struct array *array;
	CUresult result = CUDA_SUCCESS;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (out == NULL || shape == NULL || levels == 0 || bytes_of(shape, levels) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	array = calloc(1, sizeof(*array));
	if (array == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	array->ctx = ctx;
	array->mipmap = mipmap;
	array->shape = *shape;
	array->bytes = bytes_of(shape, levels);
	drv_lock();
	if ((shape->Flags & LATER) == 0)
		result = drv_block_allocate(ctx, SIM_ARRAY, &array->base, array->bytes, false);
	if (result == CUDA_SUCCESS) {
		array->next = arrays;
		arrays = array;
		*out = array;
		drv_asked(SIM_ARRAYS_MADE);
	} else
		free(array);
	return drv_unlock(result);
}

CUresult sim_cuArray3DCreate_v2(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	return create((struct array **)array, shape, 1, false);
}

CUresult sim_cuArray3DCreate(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *shape)
{
	CUDA_ARRAY3D_DESCRIPTOR wide;

	NEED(drv_ready());
	if (shape == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	wide = (CUDA_ARRAY3D_DESCRIPTOR){ shape->Width,	 shape->Height,	     shape->Depth,
					  shape->Format, shape->NumChannels, shape->Flags };
	return sim_cuArray3DCreate_v2(array, &wide);
}

CUresult sim_cuArrayCreate_v2(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *shape)
{
	CUDA_ARRAY3D_DESCRIPTOR wide;

	NEED(drv_ready());
	if (shape == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	wide = (CUDA_ARRAY3D_DESCRIPTOR){ .Width = shape->Width,
					  .Height = shape->Height,
					  .Format = shape->Format,
					  .NumChannels = shape->NumChannels };
	return sim_cuArray3DCreate_v2(array, &wide);
}

CUresult sim_cuArrayCreate(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *shape)
{
	CUDA_ARRAY_DESCRIPTOR wide;

	NEED(drv_ready());
	if (shape == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	wide = (CUDA_ARRAY_DESCRIPTOR){ shape->Width, shape->Height, shape->Format, shape->NumChannels };
	return sim_cuArrayCreate_v2(array, &wide);
}

CUresult sim_cuMipmappedArrayCreate(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *shape,
				    unsigned int levels)
{
	return create((struct array **)array, shape, levels, true);
}

/* With the lock held. */
static struct array *find(const void *array, bool mipmap)
{
	for (struct array *a = arrays; a != NULL; a = a->next)
		if (a == array && a->mipmap == mipmap)
			return a;
	return NULL;
}

static void drop_part(struct part **at)
{
	struct part *part = *at;

	*at = part->next;
	drv_vmm_unmapped(part->vmm);
	free(part);
}

/* Forgets the array and the parts of it; its block goes by itself when the context ends. */
static void forget(struct array *array)
{
	drv_asked(SIM_ARRAYS_GONE);
	while (array->parts != NULL)
		drop_part(&array->parts);
	for (struct array **at = &arrays; *at != NULL; at = &(*at)->next)
		if (*at == array) {
			*at = array->next;
			break;
		}
	free(array);
}

void drv_arrays_free_all(CUcontext ctx)
{
	for (struct array *a = arrays, *next; a != NULL; a = next) {
		next = a->next;
		if (a->ctx == ctx)
			forget(a);
	}
}

static CUresult destroy(const void *handle, bool mipmap)
{
	struct array *array;

	NEED(drv_ready());
	drv_lock();
	array = find(handle, mipmap);
	if (array == NULL)
		return drv_unlock(CUDA_ERROR_INVALID_HANDLE);
	if (array->base != 0)
		drv_block_release(drv_block_find(array->base));
	forget(array);
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuArrayDestroy(CUarray array)
{
	return destroy(array, false);
}

CUresult sim_cuMipmappedArrayDestroy(CUmipmappedArray array)
{
	return destroy(array, true);
}

/* For arrays that are mapped later only, as in the real driver. */
static CUresult needs_of(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, const void *handle, bool mipmap,
			 CUdevice device)
{
	struct array *array;

	NEED(drv_device(device));
	drv_lock();
	array = find(handle, mipmap);
	if (needs == NULL || array == NULL || (array->shape.Flags & CUDA_ARRAY3D_DEFERRED_MAPPING) == 0)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	*needs = (CUDA_ARRAY_MEMORY_REQUIREMENTS){ .size = array->bytes, .alignment = SIM_GRANULE_BYTES };
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs, CUarray array,
					  CUdevice device)
{
	return needs_of(needs, array, false, device);
}

CUresult sim_cuMipmappedArrayGetMemoryRequirements(CUDA_ARRAY_MEMORY_REQUIREMENTS *needs,
						   CUmipmappedArray array, CUdevice device)
{
	return needs_of(needs, array, true, device);
}

/* Parts are told apart by where they begin. */
static struct part **part_of(struct array *array, const CUarrayMapInfo *map)
{
	struct part **at = &array->parts;

	while (*at != NULL &&
	       ((*at)->at.subresourceType != map->subresourceType ||
		(*at)->at.subresource.sparseLevel.level != map->subresource.sparseLevel.level ||
		(*at)->at.subresource.sparseLevel.layer != map->subresource.sparseLevel.layer ||
		(*at)->at.subresource.sparseLevel.offsetX != map->subresource.sparseLevel.offsetX ||
		(*at)->at.subresource.sparseLevel.offsetY != map->subresource.sparseLevel.offsetY ||
		(*at)->at.subresource.sparseLevel.offsetZ != map->subresource.sparseLevel.offsetZ))
		at = &(*at)->next;
	return at;
}

/* With the lock held. */
static CUresult apply(const CUarrayMapInfo *map)
{
	struct array *array = find(map->resource.array, map->resourceType == 1);
	struct part **old, *part;

	if (array == NULL || (array->shape.Flags & LATER) == 0 || map->memHandleType != 0)
		return CUDA_ERROR_INVALID_VALUE;
	old = part_of(array, map);
	if (map->memOperationType == CU_MEM_OPERATION_TYPE_UNMAP) {
		if (*old != NULL)
			drop_part(old);
		return CUDA_SUCCESS;
	}
	part = calloc(1, sizeof(*part));
	if (part == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	part->at = *map;
	part->vmm = drv_vmm_mapped(map->memHandle.memHandle);
	if (part->vmm == NULL) {
		free(part);
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (*old != NULL)
		drop_part(old);
	part->next = array->parts;
	array->parts = part;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemMapArrayAsync(CUarrayMapInfo *list, unsigned int count, CUstream handle)
{
	CUresult result = CUDA_SUCCESS;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (list == NULL || count == 0)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	for (unsigned i = 0; i < count && result == CUDA_SUCCESS; i++)
		result = apply(&list[i]);
	return drv_unlock(result);
}

CUresult sim_cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned int count, CUstream stream)
{
	return sim_cuMemMapArrayAsync(list, count, drv_ptsz(stream));
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory/array.h"

#include "api/symbols.h"
#include "base/arithmetic.h"
#include "base/futex.h"
#include "base/table.h"
#include "memory/charge.h"
#include "memory/holders.h"
#include "memory/own.h"
#include "memory/vmm.h"
#include "tuning.h"

#define FREE_FLAGS (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING)

/* ---- size ---- */

/* An array that is mapped later takes nothing, and the driver tells what the same one would need.
 * False where it cannot (before CUDA 11.6, or a shape that it does not map later). */
static bool ask_driver(const CUDA_ARRAY3D_DESCRIPTOR *shape, uint32_t levels, uint64_t *bytes)
{
	vgpu_fn_cuArrayGetMemoryRequirements *needs_of = VGPU_REAL(cuArrayGetMemoryRequirements);
	vgpu_fn_cuMipmappedArrayGetMemoryRequirements *mip_needs_of =
		VGPU_REAL(cuMipmappedArrayGetMemoryRequirements);
	vgpu_fn_cuArray3DCreate_v2 *create = VGPU_REAL(cuArray3DCreate_v2);
	vgpu_fn_cuMipmappedArrayCreate *mip_create = VGPU_REAL(cuMipmappedArrayCreate);
	vgpu_fn_cuArrayDestroy *destroy = VGPU_REAL(cuArrayDestroy);
	vgpu_fn_cuMipmappedArrayDestroy *mip_destroy = VGPU_REAL(cuMipmappedArrayDestroy);
	vgpu_fn_cuCtxGetDevice *get_device = VGPU_REAL(cuCtxGetDevice);
	CUDA_ARRAY3D_DESCRIPTOR later = *shape;
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs = {0};
	CUmipmappedArray mipmap;
	CUarray array;
	CUdevice ordinal;
	bool ok;

	later.Flags |= CUDA_ARRAY3D_DEFERRED_MAPPING;
	if (needs_of == NULL || mip_needs_of == NULL || create == NULL || mip_create == NULL ||
	    destroy == NULL || mip_destroy == NULL || get_device == NULL ||
	    get_device(&ordinal) != CUDA_SUCCESS)
		return false;
	if (levels > 0) {
		if (mip_create(&mipmap, &later, levels) != CUDA_SUCCESS)
			return false;
		ok = mip_needs_of(&needs, mipmap, ordinal) == CUDA_SUCCESS;
		mip_destroy(mipmap);
	} else {
		if (create(&array, &later) != CUDA_SUCCESS)
			return false;
		ok = needs_of(&needs, array, ordinal) == CUDA_SUCCESS;
		destroy(array);
	}
	*bytes = needs.size;
	return ok && needs.size > 0;
}

uint64_t vgpu_array_element_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape)
{
	/* UNORM and SNORM, with channels. */
	static const uint8_t normalised[] = {1, 2, 4, 2, 4, 8, 1, 2, 4, 2, 4, 8};

	switch (shape->Format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return shape->NumChannels;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2 * (uint64_t)shape->NumChannels;
	default:
		if (shape->Format >= 0x91 && shape->Format <= 0x9e) /* block-compressed */
			return 1;
		if (shape->Format >= 0xc0 && shape->Format < 0xc0 + (int)sizeof(normalised))
			return normalised[shape->Format - 0xc0];
		return 4 * (uint64_t)shape->NumChannels;
	}
}

/* Arrays lie in tiles of a few rows, and those in columns of up to 16. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, uint32_t level)
{
	bool layered = (shape->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP)) != 0;
	uint64_t width = shape->Width >> level;
	uint64_t height = shape->Height >> level;
	uint64_t depth = layered ? shape->Depth : shape->Depth >> level;
	uint64_t rows = 1;

	width = width > 0 ? width : 1;
	height = height > 0 ? height : 1;
	depth = depth > 0 ? depth : 1;
	if (height > 1) {
		for (rows = VGPU_ARRAY_LEAST_ROWS; rows < VGPU_ARRAY_MOST_ROWS && rows < height; rows *= 2)
			;
	}
	width = vgpu_round_up(vgpu_times(width, vgpu_array_element_bytes(shape)),
			      VGPU_ARRAY_ROW_BYTES);
	return vgpu_times(vgpu_times(width, vgpu_round_up(height, rows)), depth);
}

static uint64_t computed_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, uint32_t levels)
{
	uint64_t bytes = 0;

	for (uint32_t level = 0; level == 0 || (level < levels && level < 32); level++) {
		uint64_t more = level_bytes(shape, level);

		bytes = vgpu_plus(bytes, more);
	}
	return bytes;
}

/* Measured on an H200, driver 580: an array takes whole granules of what the driver says that the
 * deferred one needs, and up to 1 MiB shares them. The smallest need is a page of 64 KiB, but
 * arrays below that share pages too. An array has no address, so that the granule is not known. */
uint64_t vgpu_array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *shape, uint32_t levels)
{
	uint64_t computed, bytes;

	if ((shape->Flags & FREE_FLAGS) != 0 || shape->Width == 0)
		return 0;
	computed = computed_bytes(shape, levels);
	if (!ask_driver(shape, levels, &bytes) || (bytes <= VGPU_ARRAY_PAGE_BYTES && computed < bytes))
		bytes = computed;
	return vgpu_charge_share(bytes);
}

/* ---- mappings ----
 *
 * vgpu_memory(p)->array_maps: one entry per part of an array that memory was mapped to.
 *   key    of the array and the part; a part that overlaps others is one of its own, so that memory
 *          may be counted for longer than it is held, but never for less
 *   owner  the memory, in vmm.h
 *   bytes  the array's key, without its lowest bit; that bit is set while the array is destroyed
 *   count  of the context */

static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = (hash ^ value) * 0x9e3779b97f4a7c15ull;
	return hash ^ hash >> 29;
}

static uint64_t part_key(const CUarrayMapInfo *map)
{
	uint64_t key = mix((uint64_t)map->subresourceType, (uintptr_t)map->resource.array);

	if (map->subresourceType == 0) {
		key = mix(key, (uint64_t)map->subresource.sparseLevel.level << 32 |
				       map->subresource.sparseLevel.layer);
		key = mix(key, (uint64_t)map->subresource.sparseLevel.offsetX << 32 |
				       map->subresource.sparseLevel.offsetY);
		key = mix(key, (uint64_t)map->subresource.sparseLevel.offsetZ << 32 |
				       map->subresource.sparseLevel.extentWidth);
		key = mix(key, (uint64_t)map->subresource.sparseLevel.extentHeight << 32 |
				       map->subresource.sparseLevel.extentDepth);
	} else {
		key = mix(key, map->subresource.miptail.layer);
		key = mix(mix(key, map->subresource.miptail.offset), map->subresource.miptail.size);
	}
	return key | 1;
}

static uint32_t context_tag(CUcontext context)
{
	return (uint32_t)(mix(1, (uintptr_t)context) >> 32);
}

void vgpu_array_mapped(struct vgpu_process *p, const CUarrayMapInfo *list, uint32_t count, CUcontext context)
{
	for (uint32_t i = 0; i < count; i++) {
		struct vgpu_entry part = {.key = part_key(&list[i]),
					  .bytes = (uint64_t)(uintptr_t)list[i].resource.array & ~1ull,
					  .count = context_tag(context)};
		struct vgpu_entry old = {0};

		if (list[i].memOperationType == CU_MEM_OPERATION_TYPE_MAP && list[i].memHandleType == 0)
			part.owner = vgpu_vmm_hold(p, list[i].memHandle.memHandle);
		vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
		vgpu_table_take(&vgpu_memory(p)->array_maps, part.key, &old);
		/* Without memory for it the charge stays until the process ends. */
		if (part.owner != 0)
			vgpu_table_put(&vgpu_memory(p)->array_maps, &part);
		vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
		if (old.owner != 0)
			vgpu_holders_drop(p, old.owner);
	}
}

static void rename_array(struct vgpu_process *p, uint64_t from, uint64_t to)
{
	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	for (uint64_t i = 0; i < vgpu_memory(p)->array_maps.capacity; i++) {
		if (vgpu_memory(p)->array_maps.entry[i].key != 0 &&
		    vgpu_memory(p)->array_maps.entry[i].bytes == from)
			vgpu_memory(p)->array_maps.entry[i].bytes = to;
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
}

static bool take_part(struct vgpu_process *p, bool by_context, uint64_t wanted, struct vgpu_entry *part)
{
	bool found = false;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	for (uint64_t i = 0; i < vgpu_memory(p)->array_maps.capacity && !found; i++) {
		const struct vgpu_entry *entry = &vgpu_memory(p)->array_maps.entry[i];

		if (entry->key != 0 && (by_context ? entry->count : entry->bytes) == wanted)
			found = vgpu_table_take(&vgpu_memory(p)->array_maps, entry->key, part);
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return found;
}

void vgpu_array_leaves(struct vgpu_process *p, const void *array)
{
	rename_array(p, (uint64_t)(uintptr_t)array & ~1ull, vgpu_array_key(array));
}

void vgpu_array_stays(struct vgpu_process *p, const void *array)
{
	rename_array(p, vgpu_array_key(array), (uint64_t)(uintptr_t)array & ~1ull);
}

void vgpu_array_left(struct vgpu_process *p, const void *array)
{
	struct vgpu_entry part;

	while (take_part(p, false, vgpu_array_key(array), &part))
		vgpu_holders_drop(p, part.owner);
}

void vgpu_array_drop_context(struct vgpu_process *p, CUcontext context)
{
	struct vgpu_entry part;

	while (take_part(p, true, context_tag(context), &part))
		vgpu_holders_drop(p, part.owner);
}

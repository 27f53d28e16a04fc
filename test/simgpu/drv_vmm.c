/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Virtual memory management: physical memory by handle, address ranges, and mappings of the one
 * into the other. Physical memory lives until its last handle reference and its last mapping. */
#include "drv_share.h"

#include <stdlib.h>

struct sim_vmm {
	struct sim_vmm *next;
	CUmemGenericAllocationHandle id;
	CUmemAllocationProp prop;
	uint64_t bytes;
	int device; /* -1: host memory */
	unsigned refs, maps;
	struct sim_vmm *of; /* NULL, or the same memory by the handle that it was made with */
};

struct range {
	struct range *next;
	CUdeviceptr base;
	uint64_t bytes;
};

static struct sim_vmm *handles;
static struct range *ranges;

static struct sim_vmm *find(CUmemGenericAllocationHandle id)
{
	for (struct sim_vmm *vmm = handles; vmm != NULL; vmm = vmm->next)
		if (vmm->id == id)
			return vmm;
	return NULL;
}

static void end_unused(struct sim_vmm *vmm)
{
	if (vmm->refs != 0 || vmm->maps != 0)
		return;
	if (vmm->device >= 0)
		sim_mem_give(vmm->device, vmm->bytes);
	drv_share_closed(vmm->id);
	drv_multicast_ended(vmm->id);
	for (struct sim_vmm **at = &handles; *at != NULL; at = &(*at)->next)
		if (*at == vmm) {
			*at = vmm->next;
			break;
		}
	if (vmm->of != NULL)
		drv_vmm_unmapped(vmm->of);
	free(vmm);
}

void drv_vmm_unmapped(struct sim_vmm *vmm)
{
	vmm->maps--;
	end_unused(vmm);
}

struct sim_vmm *drv_vmm_mapped(CUmemGenericAllocationHandle handle)
{
	struct sim_vmm *vmm = find(handle);

	if (vmm == NULL || vmm->refs == 0)
		return NULL;
	vmm->maps++;
	return vmm;
}

struct sim_vmm *drv_vmm_mapped_at(CUdeviceptr pointer)
{
	struct sim_block *block = drv_block_find(pointer);

	if (block == NULL || block->kind != SIM_MAPPED)
		return NULL;
	block->vmm->maps++;
	return block->vmm;
}

int drv_vmm_device(const struct sim_vmm *vmm)
{
	return vmm->device;
}

CUresult drv_vmm_describe(CUmemGenericAllocationHandle handle, CUmemAllocationProp *prop, uint64_t *bytes)
{
	struct sim_vmm *vmm = find(handle);

	if (vmm == NULL || vmm->refs == 0)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = vmm->prop;
	*bytes = vmm->bytes;
	return CUDA_SUCCESS;
}

CUresult drv_vmm_import(const CUmemAllocationProp *prop, uint64_t bytes, CUmemGenericAllocationHandle *handle)
{
	struct sim_vmm *vmm = calloc(1, sizeof(*vmm));

	if (vmm == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*vmm = (struct sim_vmm){ .next = handles, .prop = *prop, .bytes = bytes, .refs = 1, .device = -1 };
	vmm->id = 0x56000000ull + ++drv.next_id;
	handles = vmm;
	*handle = vmm->id;
	return CUDA_SUCCESS;
}

CUresult drv_vmm_again(CUmemGenericAllocationHandle known, CUmemGenericAllocationHandle *handle)
{
	struct sim_vmm *vmm = find(known);

	if (vmm == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_vmm_import(&vmm->prop, vmm->bytes, handle));
	handles->of = vmm;
	vmm->maps++;
	return CUDA_SUCCESS;
}

static CUresult check_prop(const CUmemAllocationProp *prop)
{
	if (prop == NULL || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	switch (prop->location.type) {
	case CU_MEM_LOCATION_TYPE_DEVICE:
		return drv_device(prop->location.id);
	case CU_MEM_LOCATION_TYPE_HOST:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA:
	case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
		return CUDA_SUCCESS;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult sim_cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop, int option)
{
	NEED(drv_ready());
	if (granularity == NULL || option < 0 || option > 1)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(check_prop(prop));
	*granularity = SIM_GRANULE_BYTES;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
			 const CUmemAllocationProp *prop, unsigned long long flags)
{
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	struct sim_vmm *vmm;

	NEED(drv_ready());
	if (handle == NULL || size == 0 || size % SIM_GRANULE_BYTES != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(check_prop(prop));
	vmm = calloc(1, sizeof(*vmm));
	if (vmm == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	vmm->prop = *prop;
	vmm->bytes = size;
	vmm->refs = 1;
	vmm->device = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE
			      ? drv.device[prop->location.id]
			      : -1;
	drv_lock();
	if (!drv_fail_injected() && (vmm->device < 0 || sim_mem_take(vmm->device, size) == 0)) {
		vmm->id = 0x56000000ull + ++drv.next_id;
		vmm->next = handles;
		handles = vmm;
		*handle = vmm->id;
		result = CUDA_SUCCESS;
	} else
		free(vmm);
	return drv_unlock(result);
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle handle)
{
	struct sim_vmm *vmm;

	NEED(drv_ready());
	drv_lock();
	drv_descriptor_look();
	vmm = find(handle);
	if (vmm == NULL || vmm->refs == 0)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	vmm->refs--;
	end_unused(vmm);
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
	struct sim_block *block;

	NEED(drv_ready());
	if (handle == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_block_find((uintptr_t)address);
	if (block == NULL || block->kind != SIM_MAPPED)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	block->vmm->refs++;
	*handle = block->vmm->id;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						    CUmemGenericAllocationHandle handle)
{
	struct sim_vmm *vmm;

	NEED(drv_ready());
	if (prop == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	vmm = find(handle);
	if (vmm != NULL)
		*prop = vmm->prop;
	return drv_unlock(vmm != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static bool inside(const struct range *range, CUdeviceptr pointer, uint64_t size)
{
	return pointer >= range->base && size <= range->bytes &&
	       pointer - range->base <= range->bytes - size;
}

CUresult sim_cuMemAddressReserve(CUdeviceptr *pointer, size_t size, size_t alignment,
				 CUdeviceptr wish, unsigned long long flags)
{
	struct range *range;

	(void)wish; /* a wish only */
	NEED(drv_ready());
	if (pointer == NULL || size == 0 || size % SIM_GRANULE_BYTES != 0 ||
	    (alignment & (alignment - 1)) != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	range = calloc(1, sizeof(*range));
	if (range == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv_lock();
	range->bytes = size;
	/* A larger alignment than the granule is met by taking more addresses, which are not used
	 * again. */
	if (alignment > SIM_GRANULE_BYTES)
		range->base = sim_round_up(drv_va_take(size + alignment, false), alignment);
	else
		range->base = drv_va_take(size, false);
	range->next = ranges;
	ranges = range;
	*pointer = range->base;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemAddressFree(CUdeviceptr pointer, size_t size)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	NEED(drv_ready());
	drv_lock();
	for (struct range **at = &ranges; *at != NULL; at = &(*at)->next) {
		struct range *range = *at;
		bool mapped = false;

		if (range->base != pointer || range->bytes != size)
			continue;
		for (uint64_t off = 0; off < size && !mapped; off += SIM_GRANULE_BYTES)
			mapped = drv_block_find(pointer + off) != NULL;
		if (!mapped) {
			*at = range->next;
			drv_va_give(range->base, range->bytes, false);
			free(range);
			result = CUDA_SUCCESS;
		}
		break;
	}
	return drv_unlock(result);
}

/* With the lock held. */
static CUresult map(CUdeviceptr pointer, size_t size, CUmemGenericAllocationHandle handle)
{
	struct sim_vmm *vmm = find(handle);
	struct range *range = ranges;
	struct sim_block *block;

	while (range != NULL && !inside(range, pointer, size))
		range = range->next;
	if (vmm == NULL || vmm->refs == 0 || range == NULL || size > vmm->bytes)
		return CUDA_ERROR_INVALID_VALUE;
	for (uint64_t off = 0; off < size; off += SIM_GRANULE_BYTES)
		if (drv_block_find(pointer + off) != NULL)
			return CUDA_ERROR_INVALID_VALUE; /* something is mapped there */
	block = drv_block_new(SIM_MAPPED, pointer, size, NULL);
	if (block == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block->vmm = vmm;
	block->device = vmm->device;
	block->ordinal = vmm->prop.location.id;
	vmm->maps++;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemMap(CUdeviceptr pointer, size_t size, size_t offset,
		      CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	CUresult result;

	NEED(drv_ready());
	if (size == 0 || size % SIM_GRANULE_BYTES != 0 || pointer % SIM_GRANULE_BYTES != 0 ||
	    offset != 0 || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = map(pointer, size, handle);
	return drv_unlock(result);
}

/* Whether whole mappings fill the range without a hole. With the lock held. */
static bool tiled(CUdeviceptr pointer, size_t size)
{
	while (size != 0) {
		struct sim_block *block = drv_block_find(pointer);

		if (block == NULL || block->kind != SIM_MAPPED || block->base != pointer ||
		    block->span > size)
			return false;
		pointer += block->span;
		size -= block->span;
	}
	return true;
}

CUresult sim_cuMemUnmap(CUdeviceptr pointer, size_t size)
{
	NEED(drv_ready());
	if (size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	drv_descriptor_look();
	if (!tiled(pointer, size))
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	while (size != 0) {
		struct sim_block *block = drv_block_find(pointer);

		pointer += block->span;
		size -= block->span;
		drv_block_release(block);
	}
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemSetAccess(CUdeviceptr pointer, size_t size, const CUmemAccessDesc *access, size_t count)
{
	bool ok;

	NEED(drv_ready());
	if (access == NULL || count == 0 || size == 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		if (access[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE)
			NEED(drv_device(access[i].location.id));
	drv_lock();
	ok = tiled(pointer, size);
	return drv_unlock(ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

CUresult sim_cuMemGetAccess(unsigned long long *flags, const CUmemLocation *location, CUdeviceptr pointer)
{
	struct sim_block *block;

	NEED(drv_ready());
	if (flags == NULL || location == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL || block->kind != SIM_MAPPED)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	*flags = location->id == block->ordinal ? 3 : 0;
	return drv_unlock(CUDA_SUCCESS);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds VMM_*: memory by handle. */
#ifndef VGPU_CUDA_VMM_H
#define VGPU_CUDA_VMM_H

#include "base/table.h"
#include "context/overhead.h"
#include "cuda/memory.h"
#include "cuda/wrap.h"
#include "memory/blocks.h"
#include "memory/charge.h"
#include "memory/descriptors.h"
#include "memory/holders.h"
#include "memory/vmm.h"
#include "tuning.h"

/* Memory of the host is not the device's. */
static CUresult charge_location(struct vgpu_charge *charge, const CUmemAllocationProp *prop, uint64_t bytes)
{
	vgpu_overhead_catch_up(attached());
	if (prop != NULL && prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return vgpu_charge_device(charge, prop->location.id, bytes);
	*charge = (struct vgpu_charge){.device = VGPU_NO_DEVICE};
	return CUDA_SUCCESS;
}

static CUresult handle_made(const struct vgpu_charge *charge, CUmemGenericAllocationHandle handle)
{
	if (charge->process != NULL && charge->device >= 0)
		vgpu_vmm_created(charge->process, handle, (uint32_t)charge->device, charge->bytes);
	return CUDA_SUCCESS;
}

#define WRAP_VMM_CREATE(symbol, params, args, handle, size, prop)                               \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		REAL_OR_RETURN(symbol);                                                         \
		CHARGE_OR_RETURN(charge_location(&charge, prop, size));                         \
		CUresult result = real args;                                                    \
                                                                                                \
		return result == CUDA_SUCCESS ? handle_made(&charge, *(handle)) : not_made(&charge, result); \
	}

static void drop_memory(struct vgpu_process *p, uint64_t memory)
{
	vgpu_holders_drop(p, memory);
	vgpu_overhead_look_at_closed(p);
}

static CUresult released(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint64_t memory,
			 CUresult result)
{
	if (memory != 0 && result == CUDA_SUCCESS)
		drop_memory(p, memory);
	else if (memory != 0)
		vgpu_vmm_unrelease(p, handle, memory);
	return result;
}

#define WRAP_VMM_RELEASE(symbol, params, args, handle)                                          \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		uint64_t memory = p != NULL ? vgpu_vmm_release(p, handle) : 0;                  \
                                                                                                \
		return released(p, handle, memory, real args);                                  \
	}

/* Whether what was held for the call stays so. */
static bool stays_held(struct vgpu_process *p, uint64_t memory, CUresult result)
{
	if (memory != 0 && result != CUDA_SUCCESS)
		drop_memory(p, memory);
	return memory != 0 && result == CUDA_SUCCESS;
}

#define WRAP_VMM_HOLD(symbol, params, args, hold, held)                                         \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		uint64_t memory = p != NULL ? (hold) : 0;                                       \
		CUresult result = real args;                                                    \
                                                                                                \
		if (stays_held(p, memory, result))                                              \
			held;                                                                   \
		return result;                                                                  \
	}

/* Begins to give out the memory of a range, also of a block that was allocated by pointer. */
static uint64_t begin_range(struct vgpu_process *p, CUdeviceptr address, size_t size)
{
	vgpu_fn_cuMemGetAddressRange_v2 *get_range = VGPU_REAL(cuMemGetAddressRange_v2);
	CUdeviceptr base = 0;
	uint32_t device = 0;
	bool is_block = get_range != NULL && get_range(&base, NULL, address) == CUDA_SUCCESS &&
			vgpu_blocks_device(p, base, &device);

	return vgpu_descriptors_begin_range(p, address, size, is_block ? base : 0, device);
}

/* Only a descriptor keeps the memory that it was given out for. */
#define WRAP_VMM_EXPORT(symbol, params, args, shared, is_descriptor, begin)                     \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		uint64_t given = p != NULL && (is_descriptor) ? (begin) : 0;                    \
		CUresult result = real args;                                                    \
                                                                                                \
		if (given != 0)                                                                 \
			vgpu_holders_given_out(p, given, result == CUDA_SUCCESS ? *(const int *)(shared) : -1); \
		return result;                                                                  \
	}

static CUresult after_unmap(struct vgpu_process *p, CUresult result, CUdeviceptr pointer, uint64_t size,
			    struct vgpu_entry *list, uint32_t count)
{
	while (count > 0) {
		for (uint32_t i = 0; i < count; i++) {
			if (result == CUDA_SUCCESS)
				drop_memory(p, list[i].owner);
			else
				vgpu_vmm_mapped(p, list[i].key, list[i].bytes, list[i].owner);
		}
		if (result != CUDA_SUCCESS || count < VGPU_UNMAPPED_ENTRIES)
			break;
		count = vgpu_vmm_unmap(p, pointer, size, list, VGPU_UNMAPPED_ENTRIES);
	}
	return result;
}

#define WRAP_VMM_UNMAP(symbol, params, args, pointer, size)                                                \
	WRAP(symbol, params)                                                                               \
	{                                                                                                  \
		REAL_OR_RETURN(symbol);                                                                    \
		struct vgpu_process *p = attached();                                                       \
		struct vgpu_entry list[VGPU_UNMAPPED_ENTRIES];                                                  \
		uint32_t count = p != NULL ? vgpu_vmm_unmap(p, pointer, size, list, VGPU_UNMAPPED_ENTRIES) : 0; \
                                                                                                           \
		return after_unmap(p, real args, pointer, size, list, count);                              \
	}

#endif

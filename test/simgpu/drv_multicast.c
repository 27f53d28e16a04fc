/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Multicast objects, which are memory of the host to the rest of the driver, and logical endpoints,
 * of which any number exists here. What is bound to either lives as long as it is bound. */
#include "drv.h"

#include <stdlib.h>

#define ENDPOINT (1ull << 63)

struct binding {
	struct binding *next;
	uint64_t object; /* a handle, or an endpoint's number */
	uint64_t at, bytes;
	struct sim_vmm *vmm;
};

static struct binding *bindings;

CUresult sim_cuMulticastCreate(CUmemGenericAllocationHandle *object, const CUmulticastObjectProp *prop)
{
	const CUmemAllocationProp like = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
					   .requestedHandleTypes = prop != NULL ? (int)prop->handleTypes : 0,
					   .location = { CU_MEM_LOCATION_TYPE_HOST, 0 } };

	NEED(drv_ready());
	if (object == NULL || prop == NULL || prop->numDevices == 0 || prop->size % SIM_GRANULE_BYTES != 0)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	return drv_unlock(drv_vmm_import(&like, prop->size, object));
}

CUresult sim_cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device)
{
	CUmemAllocationProp prop;
	uint64_t bytes;

	NEED(drv_device(device));
	drv_lock();
	return drv_unlock(drv_vmm_describe(object, &prop, &bytes));
}

/* With the lock held; takes over the mapping of vmm. */
static CUresult bind(uint64_t object, struct sim_vmm *vmm, uint64_t at, uint64_t bytes)
{
	struct binding *binding = calloc(1, sizeof(*binding));

	if (vmm == NULL || binding == NULL || bytes == 0 || bytes % SIM_GRANULE_BYTES != 0) {
		if (vmm != NULL)
			drv_vmm_unmapped(vmm);
		free(binding);
		return CUDA_ERROR_INVALID_VALUE;
	}
	*binding = (struct binding){ bindings, object, at, bytes, vmm };
	bindings = binding;
	return CUDA_SUCCESS;
}

/* With the lock held. The memory may be the last to go, and so end something else. */
static bool drop(uint64_t object, int device, uint64_t at, uint64_t bytes)
{
	for (struct binding **from = &bindings; *from != NULL; from = &(*from)->next) {
		struct binding *binding = *from;

		if (binding->object != object || (device >= 0 && drv_vmm_device(binding->vmm) != device) ||
		    binding->at < at || binding->at - at >= bytes)
			continue;
		*from = binding->next;
		drv_vmm_unmapped(binding->vmm);
		free(binding);
		return true;
	}
	return false;
}

void drv_multicast_ended(uint64_t object)
{
	while (drop(object, -1, 0, UINT64_MAX))
		;
}

static CUresult unbind(uint64_t object, CUdevice device, uint64_t at, uint64_t bytes)
{
	bool any = false;

	NEED(drv_device(device));
	drv_lock();
	while (drop(object, drv.device[device], at, bytes))
		any = true;
	return drv_unlock(any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}

static CUresult bind_handle(uint64_t object, uint64_t at, CUmemGenericAllocationHandle handle, uint64_t bytes)
{
	NEED(drv_ready());
	drv_lock();
	return drv_unlock(bind(object, drv_vmm_mapped(handle), at, bytes));
}

static CUresult bind_address(uint64_t object, uint64_t at, CUdeviceptr address, uint64_t bytes)
{
	NEED(drv_ready());
	drv_lock();
	return drv_unlock(bind(object, drv_vmm_mapped_at(address), at, bytes));
}

CUresult sim_cuMulticastBindMem(CUmemGenericAllocationHandle object, size_t at,
				CUmemGenericAllocationHandle handle, size_t offset, size_t size,
				unsigned long long flags)
{
	return offset != 0 || flags != 0 ? CUDA_ERROR_INVALID_VALUE : bind_handle(object, at, handle, size);
}

CUresult sim_cuMulticastBindMem_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
				   CUmemGenericAllocationHandle handle, size_t offset, size_t size,
				   unsigned long long flags)
{
	NEED(drv_device(device));
	return sim_cuMulticastBindMem(object, at, handle, offset, size, flags);
}

CUresult sim_cuMulticastBindAddr(CUmemGenericAllocationHandle object, size_t at, CUdeviceptr address,
				 size_t size, unsigned long long flags)
{
	return flags != 0 ? CUDA_ERROR_INVALID_VALUE : bind_address(object, at, address, size);
}

CUresult sim_cuMulticastBindAddr_v2(CUmemGenericAllocationHandle object, CUdevice device, size_t at,
				    CUdeviceptr address, size_t size, unsigned long long flags)
{
	NEED(drv_device(device));
	return sim_cuMulticastBindAddr(object, at, address, size, flags);
}

CUresult sim_cuMulticastUnbind(CUmemGenericAllocationHandle object, CUdevice device, size_t at, size_t size)
{
	return unbind(object, device, at, size);
}

CUresult sim_cuLogicalEndpointBindMem(CUlogicalEndpointId id, CUdevice device, cuuint64_t at,
				      CUmemGenericAllocationHandle handle, cuuint64_t offset, cuuint64_t size,
				      unsigned long long flags)
{
	NEED(drv_device(device));
	return offset != 0 || flags != 0 ? CUDA_ERROR_INVALID_VALUE
					 : bind_handle(ENDPOINT | id, at, handle, size);
}

CUresult sim_cuLogicalEndpointBindAddr(CUlogicalEndpointId id, CUdevice device, cuuint64_t at, void *address,
				       cuuint64_t size, unsigned long long flags)
{
	NEED(drv_device(device));
	return flags != 0 ? CUDA_ERROR_INVALID_VALUE
			  : bind_address(ENDPOINT | id, at, (uintptr_t)address, size);
}

CUresult sim_cuLogicalEndpointUnbind(CUlogicalEndpointId id, CUdevice device, cuuint64_t at, cuuint64_t size)
{
	return unbind(ENDPOINT | id, device, at, size);
}

CUresult sim_cuLogicalEndpointDestroy(CUlogicalEndpointId id)
{
	NEED(drv_ready());
	drv_lock();
	drv_multicast_ended(ENDPOINT | id);
	return drv_unlock(CUDA_SUCCESS);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a pointer is, and managed memory on its way to a device. */
#define _GNU_SOURCE
#include "drv.h"

CUresult sim_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer)
{
	struct sim_block *block;
	CUresult result = CUDA_SUCCESS;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (data == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	switch (attribute) {
	case 1: /* CONTEXT */
		if (block->ctx == NULL)
			result = CUDA_ERROR_INVALID_VALUE;
		else
			*(CUcontext *)data = block->ctx;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: /* host 1, device 2 */
		*(unsigned *)data = block->kind == SIM_HOST ? 1 : 2;
		break;
	case 3: /* DEVICE_POINTER */
		*(CUdeviceptr *)data = pointer;
		break;
	case 4: /* HOST_POINTER */
		if (block->kind != SIM_HOST && block->kind != SIM_MANAGED)
			result = CUDA_ERROR_INVALID_VALUE;
		else
			*(void **)data = (void *)(uintptr_t)pointer;
		break;
	case 8: /* IS_MANAGED */
		*(unsigned *)data = block->kind == SIM_MANAGED;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = block->ordinal;
		break;
	case 11: /* RANGE_START_ADDR */
		*(CUdeviceptr *)data = block->base;
		break;
	case 12: /* RANGE_SIZE */
		*(size_t *)data = block->bytes;
		break;
	case 13: /* MAPPED */
		*(unsigned *)data = 1;
		break;
	case 17: /* MEMPOOL_HANDLE */
		*(CUmemoryPool *)data = block->pool;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	return drv_unlock(result);
}

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
	struct sim_block *block;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_NOT_FOUND);
	if (base != NULL)
		*base = block->base;
	if (size != NULL)
		*size = block->bytes;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 pointer)
{
	CUdeviceptr wide;
	size_t bytes;

	NEED(sim_cuMemGetAddressRange_v2(&wide, &bytes, pointer));
	if (base != NULL)
		*base = (CUdeviceptr_v1)wide;
	if (size != NULL)
		*size = (unsigned)bytes;
	return CUDA_SUCCESS;
}

struct sim_block *drv_spans(CUdeviceptr pointer, uint64_t bytes)
{
	struct sim_block *block = drv_block_find(pointer);

	return block != NULL && bytes <= block->span - (pointer - block->base) ? block : NULL;
}

CUresult sim_cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice to, CUstream handle)
{
	struct sim_block *block;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (to >= 0)
		NEED(drv_device(to));
	drv_lock();
	block = drv_spans(pointer, bytes);
	if (block == NULL || block->kind != SIM_MANAGED || bytes == 0)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	if (to >= 0)
		drv_managed_move_in(block, drv.device[to]);
	else
		drv_managed_move_out(block); /* CU_DEVICE_CPU is -1 */
	return drv_unlock(CUDA_SUCCESS);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pools by location, and pools of other processes, whose memory ends with its owner here. */
#include "drv_share.h"

#include <string.h>
#include <unistd.h>

_Static_assert(sizeof(struct shared) <= sizeof(CUmemPoolPtrExportData), "fits into a pointer's data");

static CUmemoryPool host_pool;

/* The driver's own pool of a place, and where the current one of it is kept: NULL when it cannot be
 * set here. With the lock held. */
static CUresult pool_at(const CUmemLocation *location, int type, CUmemoryPool *pool, CUmemoryPool **current)
{
	*current = NULL;
	if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE) {
		NEED(drv_device(location->id));
		*pool = drv.default_pool[location->id];
		*current = &drv.current_pool[location->id];
		return CUDA_SUCCESS;
	}
	if (location->type != CU_MEM_LOCATION_TYPE_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	if (host_pool == NULL) {
		NEED(drv_pool_new(&host_pool, 0, 0, true));
		host_pool->of_host = true;
	}
	*pool = host_pool;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemGetDefaultMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	CUmemoryPool *current;

	NEED(drv_ready());
	if (pool == NULL || location == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	return drv_unlock(pool_at(location, type, pool, &current));
}

CUresult sim_cuMemGetMemPool(CUmemoryPool *pool, CUmemLocation *location, int type)
{
	CUmemoryPool *current;
	CUresult result;

	NEED(drv_ready());
	if (pool == NULL || location == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = pool_at(location, type, pool, &current);
	if (result == CUDA_SUCCESS && current != NULL)
		*pool = *current;
	return drv_unlock(result);
}

CUresult sim_cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool)
{
	NEED(drv_ready());
	if (location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	return sim_cuDeviceSetMemPool(location->id, pool);
}

CUresult sim_cuMemPoolExportToShareableHandle(void *shared, CUmemoryPool pool, int type,
					      unsigned long long flags)
{
	struct shared content;
	CUresult result;

	NEED(drv_ready());
	if (shared == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = drv_pool_living(pool);
	content = result == CUDA_SUCCESS ? drv_share(pool->device, (uintptr_t)pool, 0) : (struct shared){ 0 };
	drv_unlock(result);
	if (result == CUDA_SUCCESS)
		*(int *)shared = drv_share_file(&content, sizeof(content));
	return result;
}

/* The imported pool holds nothing itself. */
CUresult sim_cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shared, int type,
						unsigned long long flags)
{
	struct shared content;
	CUresult result = CUDA_ERROR_INVALID_VALUE;

	NEED(drv_ready());
	if (pool == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags != 0 ||
	    pread((int)(intptr_t)shared, &content, sizeof(content), 0) != (ssize_t)sizeof(content) ||
	    !drv_share_lives(&content))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	for (int ordinal = 0; ordinal < drv.count; ordinal++)
		if (drv.device[ordinal] == content.device)
			result = drv_pool_new(pool, ordinal, 0, false);
	if (result == CUDA_SUCCESS)
		(*pool)->imported = true;
	return drv_unlock(result);
}

CUresult sim_cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer)
{
	struct sim_block *block;
	struct shared content;

	NEED(drv_ready());
	if (data == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL || block->kind != SIM_ASYNC)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	content = drv_share(block->device, block->base, block->bytes);
	memset(data, 0, sizeof(*data));
	memcpy(data, &content, sizeof(content));
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
	struct sim_block *block = NULL;
	struct shared content;

	NEED(drv_ready());
	if (pointer == NULL || data == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&content, data, sizeof(content));
	drv_lock();
	if (drv_pool_living(pool) == CUDA_SUCCESS && pool->imported && drv_share_lives(&content))
		block = drv_share_open(pool->device, pool->ordinal, content.bytes, NULL);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	*pointer = block->base;
	return drv_unlock(CUDA_SUCCESS);
}

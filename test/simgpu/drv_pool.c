/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory. A pool reserves physical memory in chunks and keeps it until a
 * synchronisation finds more than its release threshold unused. */
#include "drv.h"

#include <stdlib.h>

#define CHUNK_BYTES (32 * SIM_MIB)
#define ALIGN_BYTES 512

CUresult drv_pool_new(CUmemoryPool *out, int ordinal, uint64_t max_bytes, bool is_default)
{
	CUmemoryPool pool = calloc(1, sizeof(*pool));

	if (pool == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pool->ordinal = ordinal;
	pool->device = drv.device[ordinal];
	pool->is_default = is_default;
	pool->max_bytes = max_bytes;
	for (int i = SIM_POOL_REUSE_FOLLOW_EVENT; i <= SIM_POOL_REUSE_INTERNAL; i++)
		pool->attribute[i] = 1;
	pool->next = drv.pools;
	drv.pools = pool;
	*out = pool;
	return CUDA_SUCCESS;
}

CUresult drv_pool_init(int ordinal)
{
	NEED(drv_pool_new(&drv.default_pool[ordinal], ordinal, 0, true));
	/* Not one of the pools that a program can see. */
	NEED(drv_pool_new(&drv.graph_pool[ordinal], ordinal, 0, true));
	drv.pools = drv.graph_pool[ordinal]->next;
	drv.current_pool[ordinal] = drv.default_pool[ordinal];
	return CUDA_SUCCESS;
}

CUresult drv_pool_living(CUmemoryPool pool)
{
	for (CUmemoryPool p = drv.pools; p != NULL; p = p->next)
		if (p == pool && !p->dead)
			return CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_VALUE;
}

void drv_pool_shrink(CUmemoryPool pool, uint64_t keep)
{
	uint64_t used = sim_round_up(pool->used_bytes, CHUNK_BYTES);

	keep = sim_round_up(keep, SIM_GRANULE_BYTES);
	if (keep < used)
		keep = used;
	if (keep >= pool->reserved_bytes)
		return;
	if (!pool->of_host)
		sim_mem_give(pool->device, pool->reserved_bytes - keep);
	pool->reserved_bytes = keep;
}

static bool grow(CUmemoryPool pool, uint64_t need)
{
	uint64_t more = sim_round_up(need, CHUNK_BYTES) + sim_conf.pool_more_mib * SIM_MIB;

	/* A maximum is rounded up to whole chunks, as measured. */
	if (pool->max_bytes != 0 && pool->reserved_bytes + need > sim_round_up(pool->max_bytes, CHUNK_BYTES))
		return false;
	if (!pool->of_host &&
	    sim_mem_take(pool->device, more) != 0) { /* the last bit of the device is smaller */
		more = sim_round_up(need, SIM_GRANULE_BYTES);
		if (sim_mem_take(pool->device, more) != 0)
			return false;
	}
	pool->reserved_bytes += more;
	if (pool->reserved_bytes > pool->reserved_high)
		pool->reserved_high = pool->reserved_bytes;
	return true;
}

bool drv_pool_reserve(CUmemoryPool pool, uint64_t bytes)
{
	if (bytes <= pool->reserved_bytes || grow(pool, bytes - pool->reserved_bytes))
		return true;
	for (CUmemoryPool p = drv.pools; p != NULL; p = p->next)
		if (p->device == pool->device)
			drv_pool_shrink(p, 0);
	return bytes <= pool->reserved_bytes || grow(pool, bytes - pool->reserved_bytes);
}

/* With the lock held. Before it refuses, it takes back what other pools keep unused. */
static CUresult allocate(CUmemoryPool pool, CUdeviceptr *out, size_t bytes)
{
	uint64_t span = sim_round_up(bytes, ALIGN_BYTES), used = pool->used_bytes + span;
	struct sim_block *block;
	CUdeviceptr base;

	if (bytes > UINT64_MAX / 2 || drv_fail_injected() || !drv_pool_reserve(pool, used))
		return CUDA_ERROR_OUT_OF_MEMORY;
	if ((base = drv_va_take(span, false)) == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	block = drv_block_new(SIM_ASYNC, base, bytes, NULL);
	if (block == NULL) {
		drv_va_give(base, span, false);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	block->span = span;
	block->ordinal = pool->ordinal;
	block->device = pool->device;
	block->pool = pool;
	pool->used_bytes = used;
	if (used > pool->used_high)
		pool->used_high = used;
	*out = base;
	return CUDA_SUCCESS;
}

void drv_pool_give(CUmemoryPool pool, uint64_t bytes)
{
	pool->used_bytes -= bytes;
	if (pool->dead && pool->used_bytes == 0)
		drv_pool_shrink(pool, 0);
}

void drv_pools_trim(int device)
{
	drv_lock();
	for (CUmemoryPool p = drv.pools; p != NULL; p = p->next)
		if (p->device == device && p->reserved_bytes > p->threshold)
			drv_pool_shrink(p, p->threshold);
	drv_unlock(CUDA_SUCCESS);
}

static CUresult alloc_async(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, bool given,
			    CUstream handle)
{
	CUresult result = CUDA_SUCCESS;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (out == NULL || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (stream->capture == NULL)
		NEED(drv_safe());
	drv_within("cuMemAllocAsync");
	drv_lock();
	if (given)
		result = drv_pool_living(pool);
	if (given && result == CUDA_SUCCESS && pool->imported)
		result = CUDA_ERROR_INVALID_VALUE;
	if (!given)
		pool = drv.current_pool[stream->ctx->ordinal];
	if (result == CUDA_SUCCESS)
		result = stream->capture != NULL ? drv_graph_alloc(stream->capture, pool->ordinal, bytes, out)
						 : allocate(pool, out, bytes);
	return drv_unlock(result);
}

CUresult sim_cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	return alloc_async(out, bytes, NULL, false, stream);
}

CUresult sim_cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream)
{
	return alloc_async(out, bytes, NULL, false, drv_ptsz(stream));
}

CUresult sim_cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
	return alloc_async(out, bytes, pool, true, stream);
}

CUresult sim_cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool,
					  CUstream stream)
{
	return alloc_async(out, bytes, pool, true, drv_ptsz(stream));
}

CUresult sim_cuMemFreeAsync(CUdeviceptr pointer, CUstream handle)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_block *block;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	drv_lock();
	if (stream->capture != NULL)
		return drv_unlock(drv_graph_free(stream->capture, pointer));
	block = drv_block_find(pointer);
	if (block != NULL && block->base == pointer &&
	    (block->kind == SIM_ASYNC || block->kind == SIM_DEVICE || block->kind == SIM_GRAPH ||
	     (block->kind == SIM_IMPORTED && block->ctx == NULL))) {
		drv_block_release(block);
		result = CUDA_SUCCESS;
	}
	return drv_unlock(result);
}

CUresult sim_cuMemFreeAsync_ptsz(CUdeviceptr pointer, CUstream stream)
{
	return sim_cuMemFreeAsync(pointer, drv_ptsz(stream));
}

/* Managed memory costs the device nothing until it is moved there. */
CUresult sim_cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	CUresult result;
	bool managed;

	NEED(drv_ready());
	if (pool == NULL || props == NULL ||
	    (props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED &&
	     props->allocType != CU_MEM_ALLOCATION_TYPE_MANAGED))
		return CUDA_ERROR_INVALID_VALUE;
	managed = props->allocType == CU_MEM_ALLOCATION_TYPE_MANAGED;
	if (props->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		NEED(drv_device(props->location.id));
	else if (!managed && props->location.type != CU_MEM_LOCATION_TYPE_HOST &&
		 props->location.type != CU_MEM_LOCATION_TYPE_HOST_NUMA)
		return CUDA_ERROR_NOT_SUPPORTED;
	drv_lock();
	result = drv_pool_new(pool,
			      props->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? props->location.id : 0,
			      props->maxSize, false);
	if (result == CUDA_SUCCESS)
		(*pool)->of_host = managed || props->location.type != CU_MEM_LOCATION_TYPE_DEVICE;
	return drv_unlock(result);
}

CUresult sim_cuMemPoolDestroy(CUmemoryPool pool)
{
	CUresult result;

	NEED(drv_ready());
	drv_lock();
	result = drv_pool_living(pool);
	if (result == CUDA_SUCCESS && pool->is_default)
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS) {
		pool->dead = true;
		drv_pool_shrink(pool, 0);
		if (drv.current_pool[pool->ordinal] == pool)
			drv.current_pool[pool->ordinal] = drv.default_pool[pool->ordinal];
	}
	return drv_unlock(result);
}

CUresult sim_cuMemPoolTrimTo(CUmemoryPool pool, size_t keep)
{
	CUresult result;

	NEED(drv_ready());
	NEED(drv_safe());
	drv_lock();
	result = drv_pool_living(pool);
	if (result == CUDA_SUCCESS)
		drv_pool_shrink(pool, keep);
	return drv_unlock(result);
}

CUresult sim_cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	CUresult result;

	drv_asked(SIM_ASKED_POOL);
	NEED(drv_ready());
	if (value == NULL || attribute < SIM_POOL_REUSE_FOLLOW_EVENT || attribute > SIM_POOL_USED_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	if (attribute == SIM_POOL_RESERVED_CURRENT && sim_conf.pool_silent)
		return CUDA_ERROR_NOT_SUPPORTED;
	NEED(drv_safe());
	drv_lock();
	result = drv_pool_living(pool);
	if (result == CUDA_SUCCESS && attribute <= SIM_POOL_REUSE_INTERNAL)
		*(int *)value = (int)pool->attribute[attribute];
	else if (result == CUDA_SUCCESS)
		*(cuuint64_t *)value = attribute == SIM_POOL_RELEASE_THRESHOLD ? pool->threshold
				       : attribute == SIM_POOL_RESERVED_CURRENT
					       ? pool->reserved_bytes
				       : attribute == SIM_POOL_RESERVED_HIGH ? pool->reserved_high
				       : attribute == SIM_POOL_USED_CURRENT  ? pool->used_bytes
									     : pool->used_high;
	drv_unlock(result);
	drv_within("cuMemPoolGetAttribute"); /* the answer stands, and is old when it comes */
	return result;
}

CUresult sim_cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value)
{
	CUresult result;

	NEED(drv_ready());
	if (value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	result = drv_pool_living(pool);
	if (result != CUDA_SUCCESS)
		return drv_unlock(result);
	if (attribute >= SIM_POOL_REUSE_FOLLOW_EVENT && attribute <= SIM_POOL_REUSE_INTERNAL)
		pool->attribute[attribute] = *(int *)value != 0;
	else if (attribute == SIM_POOL_RELEASE_THRESHOLD)
		pool->threshold = *(cuuint64_t *)value;
	else if (attribute == SIM_POOL_RESERVED_HIGH && *(cuuint64_t *)value == 0)
		pool->reserved_high = pool->reserved_bytes; /* only a reset is allowed */
	else if (attribute == SIM_POOL_USED_HIGH && *(cuuint64_t *)value == 0)
		pool->used_high = pool->used_bytes;
	else
		result = CUDA_ERROR_INVALID_VALUE;
	return drv_unlock(result);
}

CUresult sim_cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *access, size_t count)
{
	NEED(drv_ready());
	if (access == NULL && count != 0)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++)
		NEED(drv_device(access[i].location.id));
	drv_lock();
	return drv_unlock(drv_pool_living(pool));
}

CUresult sim_cuMemPoolGetAccess(int *flags, CUmemoryPool pool, CUmemLocation *location)
{
	CUresult result;

	NEED(drv_ready());
	if (flags == NULL || location == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(location->id));
	drv_lock();
	result = drv_pool_living(pool);
	if (result == CUDA_SUCCESS)
		*flags = location->id == pool->ordinal ? 3 : 0;
	return drv_unlock(result);
}

CUresult sim_cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device)
{
	NEED(drv_ready());
	if (pool == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	*pool = drv.default_pool[device];
	return CUDA_SUCCESS;
}

CUresult sim_cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device)
{
	drv_asked(SIM_ASKED_CHOICE);
	NEED(drv_ready());
	if (pool == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	drv_lock();
	*pool = drv.current_pool[device];
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool)
{
	CUresult result;

	NEED(drv_device(device));
	drv_lock();
	result = drv_pool_living(pool);
	if (result == CUDA_SUCCESS && (pool->ordinal != device || pool->imported))
		result = CUDA_ERROR_INVALID_VALUE;
	if (result == CUDA_SUCCESS)
		drv.current_pool[device] = pool;
	return drv_unlock(result);
}

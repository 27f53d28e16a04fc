/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which pools there are, and their ends. */
#include "pools.h"

#include "account.h"
#include "blocks.h"
#include "device.h"
#include "futex.h"
#include "symbols.h"

#include <sched.h>

/* Longer than the driver takes to give a pool's memory back to the device. */
#define DESTROY_WAIT_NS 1000000000u

static struct vgpu_pool *look(struct vgpu_process *p, CUmemoryPool handle)
{
	uint32_t high = __atomic_load_n(&p->pools_high, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < high && handle != NULL; i++) {
		if (__atomic_load_n(&p->pool[i].handle, __ATOMIC_ACQUIRE) == handle)
			return &p->pool[i];
	}
	return NULL;
}

static struct vgpu_pool *look_graphs(struct vgpu_process *p, CUdevice ordinal)
{
	uint32_t high = __atomic_load_n(&p->pools_high, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < high; i++) {
		if (__atomic_load_n(&p->pool[i].state, __ATOMIC_ACQUIRE) == VGPU_POOL_GRAPHS &&
		    __atomic_load_n(&p->pool[i].ordinal, __ATOMIC_RELAXED) == ordinal)
			return &p->pool[i];
	}
	return NULL;
}

/* Takes a place in the table, unless it is there. */
static struct vgpu_pool *note(struct vgpu_process *p, CUmemoryPool handle, CUdevice ordinal, int device, bool own)
{
	struct vgpu_pool *pool;

	vgpu_mutex_lock(&p->pools_mutex);
	pool = handle != NULL ? look(p, handle) : look_graphs(p, ordinal);
	for (uint32_t i = 0; i < VGPU_MAX_POOLS && pool == NULL; i++) {
		if (__atomic_load_n(&p->pool[i].state, __ATOMIC_RELAXED) != VGPU_POOL_UNUSED)
			continue;
		pool = &p->pool[i];
		/* Whoever looks at all places may still see what was here before. */
		__atomic_store_n(&pool->ordinal, ordinal, __ATOMIC_RELAXED);
		__atomic_store_n(&pool->device, device, __ATOMIC_RELAXED);
		__atomic_store_n(&pool->own, own, __ATOMIC_RELAXED);
		__atomic_store_n(&pool->state, handle != NULL ? VGPU_POOL_LIVE : VGPU_POOL_GRAPHS, __ATOMIC_RELEASE);
		__atomic_store_n(&pool->handle, handle, __ATOMIC_RELEASE);
		if (p->pools_high <= i)
			__atomic_store_n(&p->pools_high, i + 1, __ATOMIC_RELEASE);
	}
	vgpu_mutex_unlock(&p->pools_mutex);
	return pool;
}

struct vgpu_pool *vgpu_pools_find(struct vgpu_process *p, CUmemoryPool handle)
{
	vgpu_fn_cuDeviceGetDefaultMemPool *get_default;
	struct vgpu_pool *pool = look(p, handle);
	CUmemoryPool of_device;

	if (pool != NULL || handle == NULL)
		return pool;
	get_default = VGPU_REAL(cuDeviceGetDefaultMemPool);
	for (CUdevice ordinal = 0; get_default != NULL && get_default(&of_device, ordinal) == CUDA_SUCCESS; ordinal++) {
		if (of_device == handle)
			return note(p, handle, ordinal, vgpu_device_of_ordinal(p, ordinal), false);
	}
	return NULL;
}

struct vgpu_pool *vgpu_pools_of_graphs(struct vgpu_process *p, CUdevice ordinal)
{
	struct vgpu_pool *pool = look_graphs(p, ordinal);

	return pool != NULL ? pool : note(p, NULL, ordinal, vgpu_device_of_ordinal(p, ordinal), false);
}

static void note_at(struct vgpu_process *p, CUmemoryPool handle, const CUmemLocation *location, int type, bool own)
{
	if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return;
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		note(p, handle, location->id, vgpu_device_of_ordinal(p, location->id), own);
	else if (location->type >= CU_MEM_LOCATION_TYPE_HOST && location->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		note(p, handle, location->id, VGPU_NO_DEVICE, own); /* memory of the host is not the device's */
}

void vgpu_pools_made(struct vgpu_process *p, CUmemoryPool handle, const CUmemPoolProps *props)
{
	note_at(p, handle, &props->location, props->allocType, true);
}

void vgpu_pools_told(struct vgpu_process *p, CUmemoryPool handle, const CUmemLocation *location, int type)
{
	/* Others are known since they were made, or are imported, and cannot be allocated from. */
	if (vgpu_pools_find(p, handle) == NULL)
		note_at(p, handle, location, type, false);
}

void vgpu_pools_trimmed(struct vgpu_process *p, CUmemoryPool handle)
{
	struct vgpu_pool *pool = vgpu_pools_find(p, handle);

	if (pool != NULL)
		vgpu_pools_settle(p, pool);
}

/* Keeps the pool from being destroyed while the driver is asked about it. */
static CUmemoryPool use(struct vgpu_pool *pool)
{
	__atomic_add_fetch(&pool->users, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&pool->handle, __ATOMIC_SEQ_CST);
}

static void unuse(struct vgpu_pool *pool)
{
	__atomic_sub_fetch(&pool->users, 1, __ATOMIC_SEQ_CST);
}

struct vgpu_pool *vgpu_pools_destroy(struct vgpu_process *p, CUmemoryPool handle)
{
	vgpu_fn_cuMemPoolTrimTo *trim = VGPU_REAL(cuMemPoolTrimTo);
	struct vgpu_pool *pool = look(p, handle);
	uint64_t since;

	if (pool == NULL || !pool->own)
		return NULL;
	/* The last that can be learned of it. */
	if (trim != NULL && pool->device >= 0)
		trim(handle, 0);
	vgpu_pools_settle(p, pool);
	__atomic_store_n(&pool->handle, NULL, __ATOMIC_SEQ_CST);
	since = vgpu_now_ns();
	while (__atomic_load_n(&pool->users, __ATOMIC_SEQ_CST) != 0 && vgpu_now_ns() - since < DESTROY_WAIT_NS)
		sched_yield();
	return pool;
}

/* Forgets a destroyed pool once nothing of it lives. */
static void bury(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t much = 0;
	int device = __atomic_load_n(&pool->device, __ATOMIC_RELAXED);

	vgpu_mutex_lock(&pool->mutex);
	if (__atomic_load_n(&pool->state, __ATOMIC_RELAXED) == VGPU_POOL_DEAD && pool->live == 0) {
		much = pool->charged_bytes;
		__atomic_store_n(&pool->charged_bytes, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&pool->state, VGPU_POOL_UNUSED, __ATOMIC_RELEASE);
	}
	vgpu_mutex_unlock(&pool->mutex);
	if (device >= 0)
		vgpu_account_give_back(p, (uint32_t)device, much);
}

void vgpu_pools_destroyed(struct vgpu_process *p, struct vgpu_pool *pool, CUmemoryPool handle, bool gone)
{
	if (!gone) {
		__atomic_store_n(&pool->handle, handle, __ATOMIC_RELEASE);
		return;
	}
	vgpu_mutex_lock(&pool->mutex);
	__atomic_store_n(&pool->state, VGPU_POOL_DEAD, __ATOMIC_RELEASE);
	vgpu_mutex_unlock(&pool->mutex);
	bury(p, pool);
}

void vgpu_pools_block(struct vgpu_process *p, struct vgpu_pool *pool, CUdeviceptr pointer)
{
	struct vgpu_entry block = {.key = pointer, .owner = (uint64_t)(pool - p->pool) + 1, .count = VGPU_BLOCK_OF_POOL};

	if (!pool->own)
		return;
	vgpu_mutex_lock(&pool->mutex);
	pool->live++;
	vgpu_mutex_unlock(&pool->mutex);
	vgpu_blocks_put_back(p, &block);
}

void vgpu_pools_block_freed(struct vgpu_process *p, const struct vgpu_entry *block)
{
	struct vgpu_pool *pool;

	if (block->owner - 1 >= VGPU_MAX_POOLS)
		return;
	pool = &p->pool[block->owner - 1];
	vgpu_mutex_lock(&pool->mutex);
	if (pool->live > 0)
		pool->live--;
	vgpu_mutex_unlock(&pool->mutex);
	if (__atomic_load_n(&pool->state, __ATOMIC_ACQUIRE) == VGPU_POOL_DEAD)
		bury(p, pool);
}

/* Asking about a pool is not allowed while a thread captures, unless one says that one means it. */
static int relax(int mode)
{
	vgpu_fn_cuThreadExchangeStreamCaptureMode *exchange = VGPU_REAL(cuThreadExchangeStreamCaptureMode);

	return exchange != NULL && exchange(&mode) == CUDA_SUCCESS ? mode : -1;
}

/* Everything that pools hold; trimmed, for one device, or for VGPU_NO_DEVICE only asked about. */
static void go_through(struct vgpu_process *p, int trimmed)
{
	uint32_t high = __atomic_load_n(&p->pools_high, __ATOMIC_ACQUIRE);
	bool relaxed = false;
	int mode = -1;

	for (uint32_t i = 0; i < high; i++) {
		struct vgpu_pool *pool = &p->pool[i];
		uint32_t state = __atomic_load_n(&pool->state, __ATOMIC_ACQUIRE);
		int device = __atomic_load_n(&pool->device, __ATOMIC_RELAXED);
		CUmemoryPool handle;

		if (state == VGPU_POOL_UNUSED || device < 0 || (trimmed >= 0 && device != trimmed) || state == VGPU_POOL_DEAD)
			continue;
		if (trimmed < 0 && __atomic_load_n(&pool->charged_bytes, __ATOMIC_RELAXED) == 0)
			continue;
		if (!relaxed)
			mode = relax(CU_STREAM_CAPTURE_MODE_RELAXED);
		relaxed = true;
		handle = use(pool);
		if (trimmed >= 0 && state == VGPU_POOL_GRAPHS) {
			vgpu_fn_cuDeviceGraphMemTrim *trim = VGPU_REAL(cuDeviceGraphMemTrim);

			__atomic_add_fetch(&p->graphs_trimmed, 1, __ATOMIC_SEQ_CST);
			if (trim != NULL)
				trim(pool->ordinal);
		} else if (trimmed >= 0 && handle != NULL) {
			vgpu_fn_cuMemPoolTrimTo *trim = VGPU_REAL(cuMemPoolTrimTo);

			if (trim != NULL)
				trim(handle, 0);
		}
		if (state == VGPU_POOL_GRAPHS || handle != NULL)
			vgpu_pools_settle(p, pool);
		unuse(pool);
	}
	if (mode >= 0)
		relax(mode);
}

void vgpu_pools_settle_all(struct vgpu_process *p)
{
	if (__atomic_load_n(&p->pools_high, __ATOMIC_RELAXED) != 0)
		go_through(p, VGPU_NO_DEVICE);
}

void vgpu_pools_reclaim(struct vgpu_process *p, int device)
{
	if (__atomic_load_n(&p->pools_high, __ATOMIC_RELAXED) != 0)
		go_through(p, device);
}

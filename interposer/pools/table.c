/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "pools/table.h"

#include "account/account.h"
#include "api/symbols.h"
#include "base/futex.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "memory/blocks.h"
#include "pools/pools.h"
#include "tuning.h"

#include <sched.h>

static struct vgpu_pool *find_handle(struct vgpu_process *p, CUmemoryPool handle)
{
	uint32_t high = __atomic_load_n(&p->pools_high, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < high && handle != NULL; i++) {
		if (__atomic_load_n(&vgpu_pools(p)->pool[i].handle, __ATOMIC_ACQUIRE) == handle)
			return &vgpu_pools(p)->pool[i];
	}
	return NULL;
}

static struct vgpu_pool *find_graphs(struct vgpu_process *p, CUdevice ordinal)
{
	uint32_t high = __atomic_load_n(&p->pools_high, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < high; i++) {
		if (__atomic_load_n(&vgpu_pools(p)->pool[i].state, __ATOMIC_ACQUIRE) == VGPU_POOL_GRAPHS &&
		    __atomic_load_n(&vgpu_pools(p)->pool[i].ordinal, __ATOMIC_RELAXED) == ordinal)
			return &vgpu_pools(p)->pool[i];
	}
	return NULL;
}

/* Takes a place in the table, unless it is there. */
static struct vgpu_pool *note_pool(struct vgpu_process *p, CUmemoryPool handle, CUdevice ordinal, int device,
				   bool own)
{
	struct vgpu_pool *pool;

	vgpu_mutex_lock(&vgpu_pools(p)->pools_mutex, VGPU_RANK_POOLS);
	pool = handle != NULL ? find_handle(p, handle) : find_graphs(p, ordinal);
	for (uint32_t i = 0; i < VGPU_KNOWN_POOLS && pool == NULL; i++) {
		if (__atomic_load_n(&vgpu_pools(p)->pool[i].state, __ATOMIC_RELAXED) != VGPU_POOL_UNUSED)
			continue;
		pool = &vgpu_pools(p)->pool[i];
		/* A thread that looks at all places may still see the pool that was here before. */
		__atomic_store_n(&pool->ordinal, ordinal, __ATOMIC_RELAXED);
		__atomic_store_n(&pool->device, device, __ATOMIC_RELAXED);
		__atomic_store_n(&pool->own, own, __ATOMIC_RELAXED);
		__atomic_store_n(&pool->threshold_bytes, 0, __ATOMIC_RELAXED);
		/* A graph launch that reuses memory which the driver has kept reserves nothing. Another call
		 * could take that growth for its own, so the most that graphs may take is charged at once. */
		vgpu_account_tally_begins(p, &pool->tally, handle == NULL);
		__atomic_store_n(&pool->state, handle != NULL ? VGPU_POOL_LIVE : VGPU_POOL_GRAPHS,
				 __ATOMIC_RELEASE);
		__atomic_store_n(&pool->handle, handle, __ATOMIC_RELEASE);
		if (p->pools_high <= i)
			__atomic_store_n(&p->pools_high, i + 1, __ATOMIC_RELEASE);
	}
	vgpu_mutex_unlock(&vgpu_pools(p)->pools_mutex);
	return pool;
}

struct vgpu_pool *vgpu_pools_find(struct vgpu_process *p, CUmemoryPool handle)
{
	vgpu_fn_cuDeviceGetDefaultMemPool *get_default;
	struct vgpu_pool *pool = find_handle(p, handle);
	CUmemoryPool of_device;

	if (pool != NULL || handle == NULL)
		return pool;
	get_default = VGPU_REAL(cuDeviceGetDefaultMemPool);
	for (CUdevice ordinal = 0; get_default != NULL && get_default(&of_device, ordinal) == CUDA_SUCCESS;
	     ordinal++) {
		if (of_device == handle)
			return note_pool(p, handle, ordinal, vgpu_device_of_ordinal(p, ordinal), false);
	}
	return NULL;
}

struct vgpu_pool *vgpu_pools_choose(struct vgpu_process *p, CUdevice ordinal)
{
	vgpu_fn_cuDeviceGetMemPool *get_pool = VGPU_REAL(cuDeviceGetMemPool);
	bool cached = ordinal >= 0 && ordinal < VGPU_CACHED_DEVICES;
	uint64_t known = cached ? __atomic_load_n(&vgpu_pools(p)->chosen_pool[ordinal], __ATOMIC_ACQUIRE) : 0;
	struct vgpu_pool *pool;
	CUmemoryPool handle;

	if ((known & VGPU_CHOSEN_MASK) != 0)
		return &vgpu_pools(p)->pool[(known & VGPU_CHOSEN_MASK) - 1];
	if (get_pool == NULL || get_pool(&handle, ordinal) != CUDA_SUCCESS)
		return NULL;
	pool = vgpu_pools_find(p, handle);
	/* Not if it was chosen anew since the driver was asked. */
	if (cached && pool != NULL)
		__atomic_compare_exchange_n(&vgpu_pools(p)->chosen_pool[ordinal], &known,
					    known + (uint64_t)(pool - vgpu_pools(p)->pool) + 1, 0,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED);
	return pool;
}

void vgpu_pools_chosen_anew(struct vgpu_process *p)
{
	for (int i = 0; i < VGPU_CACHED_DEVICES; i++) {
		uint64_t known = __atomic_load_n(&vgpu_pools(p)->chosen_pool[i], __ATOMIC_RELAXED);

		while (!__atomic_compare_exchange_n(&vgpu_pools(p)->chosen_pool[i], &known,
						    (known | VGPU_CHOSEN_MASK) + 1, 0, __ATOMIC_SEQ_CST,
						    __ATOMIC_RELAXED))
			;
	}
}

void vgpu_pools_set(struct vgpu_process *p, CUmemoryPool handle, int attribute, const void *value)
{
	struct vgpu_pool *pool =
		attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? vgpu_pools_find(p, handle) : NULL;

	if (pool != NULL)
		__atomic_store_n(&pool->threshold_bytes, *(const cuuint64_t *)value, __ATOMIC_RELAXED);
}

struct vgpu_pool *vgpu_pools_of_graphs(struct vgpu_process *p, CUdevice ordinal)
{
	struct vgpu_pool *pool = find_graphs(p, ordinal);

	return pool != NULL ? pool : note_pool(p, NULL, ordinal, vgpu_device_of_ordinal(p, ordinal), false);
}

static void note_at(struct vgpu_process *p, CUmemoryPool handle, const CUmemLocation *location, int type,
		    bool own)
{
	if (type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return;
	if (location->type == CU_MEM_LOCATION_TYPE_DEVICE)
		note_pool(p, handle, location->id, vgpu_device_of_ordinal(p, location->id), own);
	else if (location->type >= CU_MEM_LOCATION_TYPE_HOST &&
		 location->type <= CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT)
		/* Memory of the host is not the device's. */
		note_pool(p, handle, location->id, VGPU_NO_DEVICE, own);
}

void vgpu_pools_made(struct vgpu_process *p, CUmemoryPool handle, const CUmemPoolProps *props)
{
	note_at(p, handle, &props->location, props->allocType, true);
}

void vgpu_pools_seen(struct vgpu_process *p, CUmemoryPool handle, const CUmemLocation *location, int type)
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
static CUmemoryPool use_pool(struct vgpu_pool *pool)
{
	__atomic_add_fetch(&pool->users, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&pool->handle, __ATOMIC_SEQ_CST);
}

static void unuse_pool(struct vgpu_pool *pool)
{
	__atomic_sub_fetch(&pool->users, 1, __ATOMIC_SEQ_CST);
}

struct vgpu_pool *vgpu_pools_destroy(struct vgpu_process *p, CUmemoryPool handle)
{
	vgpu_fn_cuMemPoolTrimTo *trim = VGPU_REAL(cuMemPoolTrimTo);
	struct vgpu_pool *pool = find_handle(p, handle);
	uint64_t since;

	if (pool == NULL || !pool->own)
		return NULL;
	/* The last that can be learned of it. */
	if (trim != NULL && pool->device >= 0)
		trim(handle, 0);
	vgpu_pools_settle(p, pool);
	__atomic_store_n(&pool->handle, NULL, __ATOMIC_SEQ_CST);
	vgpu_pools_chosen_anew(p);
	since = vgpu_now_ns();
	while (__atomic_load_n(&pool->users, __ATOMIC_SEQ_CST) != 0 &&
	       vgpu_now_ns() - since < VGPU_POOL_DESTROYED_NS)
		sched_yield();
	return pool;
}

/* Forgets a destroyed pool once nothing of it lives. */
static void bury(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t much = 0;
	int device = __atomic_load_n(&pool->device, __ATOMIC_RELAXED);

	vgpu_mutex_lock(&vgpu_pools(p)->pools_mutex, VGPU_RANK_POOLS);
	if (__atomic_load_n(&pool->state, __ATOMIC_RELAXED) == VGPU_POOL_DEAD && pool->live == 0) {
		much = vgpu_account_tally_ends(p, &pool->tally);
		__atomic_store_n(&pool->state, VGPU_POOL_UNUSED, __ATOMIC_RELEASE);
	}
	vgpu_mutex_unlock(&vgpu_pools(p)->pools_mutex);
	if (device >= 0)
		vgpu_account_give_back(p, (uint32_t)device, much);
}

void vgpu_pools_destroyed(struct vgpu_process *p, struct vgpu_pool *pool, CUmemoryPool handle, bool gone)
{
	if (!gone) {
		__atomic_store_n(&pool->handle, handle, __ATOMIC_RELEASE);
		return;
	}
	vgpu_mutex_lock(&vgpu_pools(p)->pools_mutex, VGPU_RANK_POOLS);
	__atomic_store_n(&pool->state, VGPU_POOL_DEAD, __ATOMIC_RELEASE);
	vgpu_mutex_unlock(&vgpu_pools(p)->pools_mutex);
	bury(p, pool);
}

void vgpu_pools_block(struct vgpu_process *p, struct vgpu_pool *pool, CUdeviceptr pointer)
{
	struct vgpu_entry block = {.key = pointer,
				   .owner = (uint64_t)(pool - vgpu_pools(p)->pool) + 1,
				   .count = VGPU_BLOCK_OF_POOL};

	vgpu_mutex_lock(&vgpu_pools(p)->pools_mutex, VGPU_RANK_POOLS);
	pool->live++;
	vgpu_mutex_unlock(&vgpu_pools(p)->pools_mutex);
	vgpu_blocks_put_back(p, &block);
}

void vgpu_pools_block_freed(struct vgpu_process *p, const struct vgpu_entry *block)
{
	struct vgpu_pool *pool;

	if (block->owner - 1 >= VGPU_KNOWN_POOLS)
		return;
	pool = &vgpu_pools(p)->pool[block->owner - 1];
	vgpu_mutex_lock(&vgpu_pools(p)->pools_mutex, VGPU_RANK_POOLS);
	if (pool->live > 0)
		pool->live--;
	vgpu_mutex_unlock(&vgpu_pools(p)->pools_mutex);
	if (__atomic_load_n(&pool->state, __ATOMIC_ACQUIRE) == VGPU_POOL_DEAD)
		bury(p, pool);
}

/* While a thread captures a stream, the driver answers questions about a pool only in relaxed mode. */
static int relax(int mode)
{
	vgpu_fn_cuThreadExchangeStreamCaptureMode *exchange = VGPU_REAL(cuThreadExchangeStreamCaptureMode);

	return exchange != NULL && exchange(&mode) == CUDA_SUCCESS ? mode : -1;
}

enum errand {
	ASK,	     /* what the pool holds */
	ASK_IF_LESS, /* the same, where a synchronisation can have made it less */
	TRIM,	     /* give the device back what it holds unused, and ask */
};

static bool is_wanted(const struct vgpu_pool *pool, uint32_t state, enum errand errand, int device)
{
	int of_pool = __atomic_load_n(&pool->device, __ATOMIC_RELAXED);
	uint64_t charged = __atomic_load_n(&pool->tally.charged_bytes, __ATOMIC_RELAXED);

	if (state == VGPU_POOL_UNUSED || state == VGPU_POOL_DEAD || of_pool < 0)
		return false;
	if (errand == TRIM)
		return of_pool == device;
	if (errand == ASK_IF_LESS && state == VGPU_POOL_LIVE)
		return charged > __atomic_load_n(&pool->threshold_bytes, __ATOMIC_RELAXED);
	return charged != 0;
}

static void trim(struct vgpu_process *p, struct vgpu_pool *pool, uint32_t state, CUmemoryPool handle)
{
	vgpu_fn_cuDeviceGraphMemTrim *trim_graphs = VGPU_REAL(cuDeviceGraphMemTrim);
	vgpu_fn_cuMemPoolTrimTo *trim_pool = VGPU_REAL(cuMemPoolTrimTo);

	if (state == VGPU_POOL_GRAPHS) {
		__atomic_add_fetch(&vgpu_pools(p)->graphs_trimmed, 1, __ATOMIC_SEQ_CST);
		if (trim_graphs != NULL)
			trim_graphs(pool->ordinal);
	} else if (handle != NULL && trim_pool != NULL) {
		trim_pool(handle, 0);
	}
}

/* To all pools, or for TRIM to those of one device. */
static void go_through(struct vgpu_process *p, enum errand errand, int device)
{
	uint32_t high = __atomic_load_n(&p->pools_high, __ATOMIC_ACQUIRE);
	bool relaxed = false;
	int mode = -1;

	for (uint32_t i = 0; i < high; i++) {
		struct vgpu_pool *pool = &vgpu_pools(p)->pool[i];
		uint32_t state = __atomic_load_n(&pool->state, __ATOMIC_ACQUIRE);
		bool own = __atomic_load_n(&pool->own, __ATOMIC_RELAXED); /* others are never destroyed */
		CUmemoryPool handle;

		if (!is_wanted(pool, state, errand, device))
			continue;
		if (!relaxed && vgpu_capture_possible(p))
			mode = relax(CU_STREAM_CAPTURE_MODE_RELAXED);
		relaxed = true;
		handle = own ? use_pool(pool) : __atomic_load_n(&pool->handle, __ATOMIC_RELAXED);
		if (errand == TRIM)
			trim(p, pool, state, handle);
		if (state == VGPU_POOL_GRAPHS || handle != NULL)
			vgpu_pools_settle(p, pool);
		if (own)
			unuse_pool(pool);
	}
	if (mode >= 0)
		relax(mode);
}

void vgpu_pools_settle_all(struct vgpu_process *p)
{
	if (__atomic_load_n(&p->pools_high, __ATOMIC_RELAXED) != 0)
		go_through(p, ASK, VGPU_NO_DEVICE);
}

void vgpu_pools_synchronised(struct vgpu_process *p)
{
	if (__atomic_load_n(&p->pools_high, __ATOMIC_RELAXED) != 0)
		go_through(p, ASK_IF_LESS, VGPU_NO_DEVICE);
}

void vgpu_pools_reclaim(struct vgpu_process *p, int device)
{
	if (__atomic_load_n(&p->pools_high, __ATOMIC_RELAXED) != 0)
		go_through(p, TRIM, device);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The account of one pool: what it is charged is never less than what it holds. */
#include "pools/pools.h"

#include "account/account.h"
#include "account/reclaim.h"
#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "tuning.h"

#include <time.h>

/* False when it is not a pool that can be asked. */
static bool ask_held_bytes(const struct vgpu_pool *pool, CUmemoryPool handle, uint64_t *bytes)
{
	cuuint64_t value = 0;
	CUresult result = CUDA_ERROR_NOT_FOUND;

	if (__atomic_load_n(&pool->state, __ATOMIC_RELAXED) == VGPU_POOL_GRAPHS) {
		vgpu_fn_cuDeviceGetGraphMemAttribute *get = VGPU_REAL(cuDeviceGetGraphMemAttribute);

		if (get != NULL)
			result = get(pool->ordinal, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &value);
	} else if (handle != NULL) {
		vgpu_fn_cuMemPoolGetAttribute *get = VGPU_REAL(cuMemPoolGetAttribute);

		if (get != NULL)
			result = get(handle, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value);
	}
	*bytes = value;
	return result == CUDA_SUCCESS;
}

static CUmemoryPool pool_handle(const struct vgpu_pool *pool)
{
	return __atomic_load_n(&pool->handle, __ATOMIC_RELAXED);
}

/* Memory that a stream frees comes back once the stream gets there, and only then can be taken from
 * the pool. A stream that waits for this very thread is not waited for long. */
static void wait_for_stream(CUstream stream)
{
	vgpu_fn_cuStreamQuery *query = VGPU_REAL(cuStreamQuery);
	const struct timespec pause = {0, VGPU_POOL_STREAM_PAUSE_NS};
	uint64_t since = vgpu_now_ns();

	while (query != NULL && query(stream) == CUDA_ERROR_NOT_READY &&
	       vgpu_now_ns() - since < VGPU_POOL_STREAM_NS)
		nanosleep(&pause, NULL);
}

static VGPU_SELDOM bool begin_when_there_is_room(struct vgpu_process *p, struct vgpu_growth *g,
						 struct vgpu_pool *pool, uint64_t growth, CUstream stream)
{
	uint32_t device = (uint32_t)pool->device;
	bool begun = false;

	if (growth <= vgpu_account_view(p, device).total_bytes)
		wait_for_stream(stream);
	g->pool = pool;
	for (int i = 0; i < VGPU_POOL_RESERVE_TRIES && !begun; i++) {
		if (!vgpu_account_charge(p, device, growth))
			return false;
		begun = vgpu_account_reserve_charged(p, device, &pool->tally, &g->flight, growth);
	}
	return begun;
}

/* That a pool holds enough unused does not mean that it does not grow: what is unused may be in
 * pieces, or freed by a stream that has not got there yet. So there is no way past this. */
bool vgpu_pools_begin(struct vgpu_process *p, struct vgpu_growth *g, struct vgpu_pool *pool, uint64_t growth,
		      CUstream stream)
{
	g->pool = pool;
	return vgpu_account_reserve(p, (uint32_t)pool->device, &pool->tally, &g->flight, growth) ||
	       begin_when_there_is_room(p, g, pool, growth, stream);
}

void vgpu_pools_begin_again(struct vgpu_process *p, struct vgpu_growth *g, struct vgpu_pool *pool,
			    uint64_t growth)
{
	g->pool = pool;
	vgpu_account_reserve_again(p, &pool->tally, &g->flight, growth);
}

void vgpu_pools_cancel_again(struct vgpu_process *p, struct vgpu_growth *g)
{
	vgpu_account_release_again(p, &g->pool->tally, &g->flight);
}

void vgpu_pools_settle(struct vgpu_process *p, struct vgpu_pool *pool)
{
	struct vgpu_flight before;
	uint64_t holds;

	/* Nothing to give back, whatever other threads are doing: what they may take is not less. */
	if (pool->device < 0 || !ask_held_bytes(pool, pool_handle(pool), &holds) ||
	    holds >= GET(pool->tally.charged_bytes))
		return;
	vgpu_account_before_asking(p, &pool->tally, &before);
	if (ask_held_bytes(pool, pool_handle(pool), &holds))
		vgpu_account_lower(p, (uint32_t)pool->device, &pool->tally, &before, holds);
}

/* How much more the pool holds than it is charged. */
static uint64_t uncharged(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t before = vgpu_account_tallied(p, &pool->tally), after, holds;

	if (!ask_held_bytes(pool, pool_handle(pool), &holds))
		return 0;
	after = vgpu_account_tallied(p, &pool->tally);
	if (after < before)
		after = before;
	return holds > after ? holds - after : 0;
}

/* Charges what the pool was found to hold beyond its charge. */
static VGPU_SELDOM bool cover_pool(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t more = uncharged(p, pool);

	if (more == 0)
		return true;
	if (!vgpu_account_charge(p, (uint32_t)pool->device, more))
		return uncharged(p, pool) == 0; /* giving back unused memory may have been enough */
	vgpu_account_tally(p, &pool->tally, more);
	vgpu_pools_settle(p, pool);
	return true;
}

bool vgpu_pools_end(struct vgpu_process *p, struct vgpu_growth *g)
{
	struct vgpu_pool *pool = g->pool;
	uint64_t holds = 0;
	bool answered = ask_held_bytes(pool, pool_handle(pool), &holds);
	struct vgpu_committed done =
		vgpu_account_commit(p, (uint32_t)pool->device, &pool->tally, &g->flight, answered, holds);

	/* It may have become less since the driver was asked, and who has seen that found nothing to
	 * lower. */
	if (done.unsure || done.grown)
		vgpu_pools_settle(p, pool);
	return !done.more || cover_pool(p, pool);
}

void vgpu_pools_force(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t more = uncharged(p, pool);

	if (more != 0) {
		vgpu_account_force(p, (uint32_t)pool->device, more);
		vgpu_account_tally(p, &pool->tally, more);
	}
	vgpu_pools_settle(p, pool);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The account of one pool: what it is charged is never less than what it holds. */
#include "pools/pools.h"

#include "account/account.h"
#include "account/inside.h"
#include "account/reclaim.h"
#include "api/symbols.h"
#include "base/futex.h"

#include <time.h>

#define WAIT_NS 2000000000u
#define PAUSE_NS 20000
#define ANNOUNCE_TRIES 10

/* False when it is not a pool that can be asked. */
static bool ask(const struct vgpu_pool *pool, CUmemoryPool handle, uint64_t *bytes)
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

static CUmemoryPool handle_of(const struct vgpu_pool *pool)
{
	return __atomic_load_n(&pool->handle, __ATOMIC_RELAXED);
}

/* With the lock held. */
static void fly(struct vgpu_growth *g, struct vgpu_pool *pool, uint64_t growth)
{
	g->pool = pool;
	g->growth = growth;
	g->others = pool->flying_growth;
	pool->flying_growth += growth;
	pool->begun_growth += growth;
	g->begun = pool->begun_growth;
}

static void raise_inside(struct vgpu_pool *pool, uint64_t bytes)
{
	__atomic_store_n(&pool->charged_bytes, pool->charged_bytes + bytes, __ATOMIC_RELAXED);
}

static void raise(struct vgpu_process *p, struct vgpu_pool *pool, uint64_t bytes)
{
	vgpu_brief_lock(&p->account_lock);
	raise_inside(pool, bytes);
	vgpu_brief_unlock(&p->account_lock);
}

/* A launch that takes again what the driver has kept for its graph is not announced, and another call that
 * was could take the charge of that for its own: so what graphs may take is charged. */
static bool is_announced(const struct vgpu_pool *pool)
{
	return __atomic_load_n(&pool->state, __ATOMIC_RELAXED) != VGPU_POOL_GRAPHS;
}

/* Memory that a stream frees comes back once the stream gets there, and only then can be taken from
 * the pool. A stream that waits for this very thread is not waited for long. */
static void wait_for_stream(CUstream stream)
{
	vgpu_fn_cuStreamQuery *query = VGPU_REAL(cuStreamQuery);
	const struct timespec pause = {0, PAUSE_NS};
	uint64_t since = vgpu_now_ns();

	while (query != NULL && query(stream) == CUDA_ERROR_NOT_READY && vgpu_now_ns() - since < WAIT_NS)
		nanosleep(&pause, NULL);
}

static VGPU_SELDOM bool begin_when_there_is_room(struct vgpu_process *p, struct vgpu_growth *g, struct vgpu_pool *pool,
					    uint64_t growth, CUstream stream)
{
	uint32_t device = (uint32_t)pool->device;
	bool begun = false;

	if (growth <= vgpu_account_view(p, device).total_bytes)
		wait_for_stream(stream);
	for (int i = 0; i < ANNOUNCE_TRIES && !begun; i++) {
		if (!vgpu_account_charge(p, device, growth))
			return false;
		vgpu_brief_lock(&p->account_lock);
		begun = !is_announced(pool) || vgpu_account_announce_charged_inside(p, device, growth);
		if (begun && is_announced(pool))
			pool->announced_bytes += growth;
		else if (begun)
			raise_inside(pool, growth);
		if (begun)
			fly(g, pool, growth);
		vgpu_brief_unlock(&p->account_lock);
	}
	return begun;
}

/* With the lock held. */
static inline bool try_to_begin(struct vgpu_process *p, struct vgpu_pool *pool, uint64_t growth)
{
	if (!is_announced(pool)) {
		if (!vgpu_account_try_inside(p, (uint32_t)pool->device, growth))
			return false;
		raise_inside(pool, growth);
		return true;
	}
	if (!vgpu_account_announce_inside(p, (uint32_t)pool->device, growth))
		return false;
	pool->announced_bytes += growth;
	return true;
}

/* That a pool holds enough unused does not mean that it does not grow: what is unused may be in
 * pieces, or freed by a stream that has not got there yet. So there is no way past this. */
bool vgpu_pools_begin(struct vgpu_process *p, struct vgpu_growth *g, struct vgpu_pool *pool, uint64_t growth,
		      CUstream stream)
{
	bool begun;

	vgpu_brief_lock(&p->account_lock);
	begun = try_to_begin(p, pool, growth);
	if (begun)
		fly(g, pool, growth);
	vgpu_brief_unlock(&p->account_lock);
	return begun || begin_when_there_is_room(p, g, pool, growth, stream);
}

void vgpu_pools_begin_again(struct vgpu_process *p, struct vgpu_growth *g, struct vgpu_pool *pool, uint64_t growth)
{
	/* Until it lands, nobody lowers the charge below what it may take again. */
	vgpu_brief_lock(&p->account_lock);
	fly(g, pool, growth);
	vgpu_brief_unlock(&p->account_lock);
}

void vgpu_pools_cancel_again(struct vgpu_process *p, struct vgpu_growth *g)
{
	vgpu_brief_lock(&p->account_lock);
	g->pool->flying_growth -= g->growth;
	vgpu_brief_unlock(&p->account_lock);
}

/* With the lock held: no call can have made the pool larger than bound. */
static void lower(struct vgpu_process *p, struct vgpu_pool *pool, uint64_t bound)
{
	if (bound >= pool->charged_bytes)
		return;
	vgpu_account_give_back_inside(p, (uint32_t)pool->device, pool->charged_bytes - bound);
	__atomic_store_n(&pool->charged_bytes, bound, __ATOMIC_RELAXED);
}

void vgpu_pools_settle(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t others, begun, holds;

	/* Nothing to give back, whatever other threads are doing: what they may take is not less. */
	if (pool->device < 0 || !ask(pool, handle_of(pool), &holds) ||
	    holds >= __atomic_load_n(&pool->charged_bytes, __ATOMIC_RELAXED))
		return;
	vgpu_brief_lock(&p->account_lock);
	others = pool->flying_growth;
	begun = pool->begun_growth;
	vgpu_brief_unlock(&p->account_lock);
	if (!ask(pool, handle_of(pool), &holds))
		return;
	vgpu_brief_lock(&p->account_lock);
	lower(p, pool, holds + others + (pool->begun_growth - begun));
	vgpu_brief_unlock(&p->account_lock);
}

/* How much more the pool holds than it is charged. */
static uint64_t uncharged(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t before, after, holds;

	vgpu_brief_lock(&p->account_lock);
	before = pool->charged_bytes + pool->announced_bytes;
	vgpu_brief_unlock(&p->account_lock);
	if (!ask(pool, handle_of(pool), &holds))
		return 0;
	vgpu_brief_lock(&p->account_lock);
	after = pool->charged_bytes + pool->announced_bytes;
	vgpu_brief_unlock(&p->account_lock);
	if (after < before)
		after = before;
	return holds > after ? holds - after : 0;
}

/* Charges what the pool was found to hold beyond its charge. */
static VGPU_SELDOM bool cover(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t more = uncharged(p, pool);

	if (more == 0)
		return true;
	if (!vgpu_account_charge(p, (uint32_t)pool->device, more))
		return uncharged(p, pool) == 0; /* giving back unused memory may have been enough */
	raise(p, pool, more);
	vgpu_pools_settle(p, pool);
	return true;
}

/* With the lock held: charges what the pool has taken of what was announced. This may be what the calls of
 * other threads have made it grow by, so it is all of it and not only this call's. */
static VGPU_SELDOM void keep(struct vgpu_process *p, struct vgpu_pool *pool, uint64_t bytes)
{
	if (bytes > pool->announced_bytes)
		bytes = pool->announced_bytes;
	vgpu_account_keep_inside(p, (uint32_t)pool->device, bytes);
	pool->announced_bytes -= bytes;
	raise_inside(pool, bytes);
}

/* With the lock held, after it was taken out of flying_growth: what is announced beyond that is not taken
 * any more. */
static void land(struct vgpu_process *p, struct vgpu_pool *pool)
{
	if (pool->announced_bytes <= pool->flying_growth)
		return;
	vgpu_account_landed_inside(p, (uint32_t)pool->device, pool->announced_bytes - pool->flying_growth);
	pool->announced_bytes = pool->flying_growth;
}

/* With the lock held, where the driver does not say what the pool holds: all of it then. */
static VGPU_SELDOM uint64_t at_most(const struct vgpu_pool *pool, const struct vgpu_growth *g)
{
	bool gone = __atomic_load_n(&pool->state, __ATOMIC_RELAXED) == VGPU_POOL_UNUSED;

	return pool->charged_bytes + (gone ? 0 : g->growth);
}

bool vgpu_pools_end(struct vgpu_process *p, struct vgpu_growth *g)
{
	struct vgpu_pool *pool = g->pool;
	uint64_t holds = 0;
	bool asked = ask(pool, handle_of(pool), &holds);
	bool grown, more, unsure;

	vgpu_brief_lock(&p->account_lock);
	if (!asked)
		holds = at_most(pool, g);
	grown = holds > pool->charged_bytes && pool->announced_bytes != 0;
	if (grown)
		keep(p, pool, holds - pool->charged_bytes);
	pool->flying_growth -= g->growth;
	land(p, pool);
	more = asked && holds > pool->charged_bytes + pool->announced_bytes;
	unsure = holds < pool->charged_bytes && (g->others != 0 || pool->begun_growth != g->begun);
	if (holds < pool->charged_bytes)
		lower(p, pool, holds + g->others + (pool->begun_growth - g->begun));
	vgpu_brief_unlock(&p->account_lock);
	/* It may have become less since the driver was asked, and who has seen that found nothing to lower. */
	if (unsure || grown)
		vgpu_pools_settle(p, pool);
	return !more || cover(p, pool);
}

void vgpu_pools_force(struct vgpu_process *p, struct vgpu_pool *pool)
{
	uint64_t more = uncharged(p, pool);

	if (more != 0) {
		vgpu_account_force(p, (uint32_t)pool->device, more);
		raise(p, pool, more);
	}
	vgpu_pools_settle(p, pool);
}

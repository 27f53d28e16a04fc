/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

static CUresult allocate(struct things *t)
{
	return cu.cuMemAllocAsync(&t->block, BLOCK_BYTES, t->stream);
}

/* More than the pool holds. */
static CUresult allocate_much(struct things *t)
{
	return cu.cuMemAllocAsync(&t->block, 40 * BLOCK_BYTES, t->stream);
}

static CUresult give(struct things *t)
{
	return cu.cuMemFreeAsync(t->block, t->stream);
}

/* Also cuMemFree takes a block of a pool. */
static CUresult give_at_once(struct things *t)
{
	return cu.cuMemFree_v2(t->block);
}

static CUresult trim(struct things *t)
{
	CUmemoryPool pool;

	(void)t;
	TRY(cu.cuDeviceGetDefaultMemPool(&pool, 0));
	return cu.cuMemPoolTrimTo(pool, 0);
}

static CUresult allocate_and_give(struct things *t)
{
	TRY(allocate_much(t));
	return give(t);
}

static CUresult make_pool(struct things *t)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	return cu.cuMemPoolCreate(&t->pool, &props);
}

static CUresult end_pool(struct things *t)
{
	return cu.cuMemPoolDestroy(t->pool);
}

static CUresult allocate_from_own(struct things *t)
{
	return cu.cuMemAllocFromPoolAsync(&t->block, BLOCK_BYTES, t->pool, t->stream);
}

/* The frees are done before the pool ends: where they are not, this driver (580.159) crashes now and then,
 * also natively. */
static CUresult give_and_wait(struct things *t)
{
	TRY(give(t));
	return cu.cuStreamSynchronize(t->stream);
}

static CUresult make_used_pool(struct things *t)
{
	TRY(make_pool(t));
	TRY(allocate_from_own(t));
	return give_and_wait(t);
}

static CUresult give_and_end_pool(struct things *t)
{
	TRY(give_and_wait(t));
	return end_pool(t);
}

/* Freed in one stream and wanted again by another one. */
static CUresult reuse_across(struct things *t)
{
	TRY(cu.cuMemAllocAsync(&t->block, BLOCK_BYTES, t->stream));
	TRY(cu.cuMemFreeAsync(t->block, t->stream));
	TRY(cu.cuMemAllocAsync(&t->block, BLOCK_BYTES, t->own_stream));
	return cu.cuMemFreeAsync(t->block, t->own_stream);
}

static CUresult make_stream(struct things *t)
{
	return cu.cuStreamCreate(&t->own_stream, STREAM_NON_BLOCKING);
}

static CUresult end_stream(struct things *t)
{
	return cu.cuStreamDestroy_v2(t->own_stream);
}

static const struct call calls[] = {
	{"cuMemAllocAsync", &cu.cuMemAllocAsync, nothing, allocate, give_at_once},
	{"cuMemAllocAsync, pool grows", &cu.cuMemAllocAsync, nothing, allocate_much, give_at_once},
	{"cuMemFreeAsync", &cu.cuMemFreeAsync, allocate, give, nothing},
	{"cuMemFree (of a pool)", &cu.cuMemFree_v2, allocate, give_at_once, nothing},
	{"cuMemPoolTrimTo", &cu.cuMemPoolTrimTo, allocate_and_give, trim, nothing},
	{"cuMemPoolCreate", &cu.cuMemPoolCreate, nothing, make_pool, end_pool},
	{"cuMemPoolDestroy", &cu.cuMemPoolDestroy, make_used_pool, end_pool, nothing},
	{"cuMemAllocFromPoolAsync", &cu.cuMemAllocFromPoolAsync, make_pool, allocate_from_own, give_and_end_pool},
	{"cuMemAllocAsync, in two streams", &cu.cuMemAllocAsync, make_stream, reuse_across, end_stream},
};

const struct calls calls_of_pools = {"pools", calls, sizeof(calls) / sizeof(calls[0])};

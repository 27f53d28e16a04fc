/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered memory: the default pool, own pools, and pools that keep what was freed. */
#include "parts.h"

static CUmemoryPool pool;
static CUdeviceptr held, other;
static uint64_t held_bytes, half_bytes;

static int start_default(void)
{
	NEEDS(cuDeviceGetDefaultMemPool);
	return cu.cuDeviceGetDefaultMemPool(&pool, the_device) == CUDA_SUCCESS ? 0 : PATH_BROKEN;
}

static int make_pool(uint64_t most_bytes)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = the_device },
	};
#if CUDA_VERSION >= 12020
	props.maxSize = most_bytes;
#else
	if (most_bytes != 0)
		return PATH_ABSENT;
#endif
	return (int)cu.cuMemPoolCreate(&pool, &props);
}

static int start_own(void)
{
	NEEDS(cuMemPoolCreate);
	return make_pool(0);
}

static int finish(CUresult result)
{
	if (result == CUDA_SUCCESS)
		result = cu.cuStreamSynchronize(NULL);
	if (result != CUDA_SUCCESS)
		cu.cuMemPoolTrimTo(pool, 0);
	return (int)result;
}

static int take_default(uint64_t bytes)
{
	held_bytes = bytes;
	return finish(cu.cuMemAllocAsync(&held, bytes, NULL));
}

static int take_own(uint64_t bytes)
{
	held_bytes = bytes;
	return finish(cu.cuMemAllocFromPoolAsync(&held, bytes, pool, NULL));
}

static int touch(void)
{
	return touch_bytes(held, held_bytes);
}

static void give(void)
{
	cu.cuMemFreeAsync(held, NULL);
	cu.cuStreamSynchronize(NULL);
	cu.cuMemPoolTrimTo(pool, 0);
}

static int start_most(void)
{
	NEEDS(cuMemPoolCreate);
#if CUDA_VERSION < 12020
	return PATH_ABSENT;
#endif
	return 0;
}

/* As JAX does: a pool with a maximum, of which all is used. */
static int take_most(uint64_t bytes)
{
	int error = make_pool(bytes);

	if (error != 0)
		return error;
	error = take_own(bytes);
	if (error != 0)
		cu.cuMemPoolDestroy(pool);
	return error;
}

static void give_most(void)
{
	give();
	cu.cuMemPoolDestroy(pool);
}

static CUdeviceptr many[4096];
static unsigned int many_count;

static int take_another(uint64_t bytes)
{
	CUresult result =
		many_count == 4096 ? CUDA_ERROR_UNKNOWN : cu.cuMemAllocAsync(&many[many_count], bytes, NULL);

	if (result != CUDA_SUCCESS)
		return (int)result;
	many_count++;
	return (int)cu.cuStreamSynchronize(NULL);
}

static void give_many(void)
{
	while (many_count > 0)
		cu.cuMemFreeAsync(many[--many_count], NULL);
	cu.cuStreamSynchronize(NULL);
	cu.cuMemPoolTrimTo(pool, 0);
}

/* The pool keeps what is freed, and then half of what there was at first is taken otherwise. */
static int start_keeping(void)
{
	cuuint64_t all = UINT64_MAX;
	size_t free_bytes, total_bytes;
	int error = start_own();

	if (error != 0)
		return error;
	if (cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all) != CUDA_SUCCESS ||
	    cu.cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS)
		return PATH_BROKEN;
	half_bytes = free_bytes / 2 / GRANULE * GRANULE;
	return 0;
}

static int take_keeping(uint64_t bytes)
{
	int error = take_own(bytes);

	if (error != 0)
		return error;
	cu.cuMemFreeAsync(held, NULL);
	cu.cuStreamSynchronize(NULL);
	error = (int)cu.cuMemAlloc_v2(&other, half_bytes);
	if (error != 0)
		cu.cuMemPoolTrimTo(pool, 0);
	return error;
}

static void give_keeping(void)
{
	cu.cuMemFree_v2(other);
	cu.cuMemPoolTrimTo(pool, 0);
}

struct path pool_paths[] = {
	{ .name = "cuMemAllocAsync", .granule = GRANULE, .start = start_default, .take = take_default, .give = give, .touch = touch },
	{ .name = "cuMemAllocAsync, blocks of 3 MiB", .granule = 3 * MIB, .flags = PATH_FILL, .start = start_default, .take = take_another, .give = give_many },
	{ .name = "own pool", .granule = GRANULE, .start = start_own, .take = take_own, .give = give, .touch = touch },
	{ .name = "own pool with maxSize", .granule = GRANULE, .start = start_most, .take = take_most, .give = give_most, .touch = touch },
	{ .name = "pool that keeps, then cuMemAlloc of half", .granule = 32 * MIB, .start = start_keeping, .take = take_keeping, .give = give_keeping },
	{ .name = NULL },
};

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered pools are charged by what they hold: in chunks of 32 MiB, live or not. */
#include "harness.h"
#include "pools/own.h"
#include "process/process.h"

#include <dlfcn.h>

#define KEEP_EVERYTHING UINT64_MAX
#define RELEASE_THRESHOLD 4

static struct step step;
static CUmemoryPool pool; /* the default one */
static CUstream stream;

/* The account, which is never less than what the driver holds. */
static uint64_t used(void)
{
	size_t own, all;

	CHECK_IS(step_slots_bytes(&step), step.ledger->used_bytes[0]);
	CHECK_IS(step.ledger->step[0].used_bytes[0], step.ledger->used_bytes[0]);
	CHECK_IS(cuSimHeld(0, &own, &all), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], all);
	return step.ledger->used_bytes[0];
}

static void begin(uint64_t limit_mib)
{
	gpus(0);
	step = step_make(1000 + (uint32_t)getpid(), 0, limit_mib, limit_mib);
	cuda_begin(0);
	CHECK_IS(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
}

static void keep_everything(CUmemoryPool which)
{
	cuuint64_t bytes = KEEP_EVERYTHING;

	CHECK_IS(cuMemPoolSetAttribute(which, RELEASE_THRESHOLD, &bytes), CUDA_SUCCESS);
}

static CUmemoryPool own_pool(CUmemLocationType type, int id, size_t most)
{
	CUmemPoolProps props = {
		.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {type, id}, .maxSize = most};
	CUmemoryPool made = NULL;

	CHECK_IS(cuMemPoolCreate(&made, &props), CUDA_SUCCESS);
	return made;
}

static void a_pool_costs_what_it_holds(void)
{
	CUdeviceptr a, b, c, d;

	begin(128);
	CHECK_IS(cuMemAllocAsync(&a, 10 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuMemAllocAsync_ptsz(&b, 20 * MIB, NULL), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuMemAllocFromPoolAsync(&c, 60 * MIB, pool, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocFromPoolAsync_ptsz(&d, 32 * MIB, pool, NULL), CUDA_SUCCESS);
	/* What is left of a chunk cannot be relied on: the driver may take another one all the same. */
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(cuMemAllocAsync(&a, 1, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocFromPoolAsync(&a, 1, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(step.ledger->refusals[0], 2);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(cuMemFreeAsync_ptsz(b, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 10 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(c), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(d, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void every_synchronisation_is_seen(void)
{
	CUdeviceptr a;
	CUevent event;
	size_t free_bytes, total_bytes;

	begin(100);
	CHECK_IS(cuEventCreate(&event, 0), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++) {
		CHECK_IS(cuMemAllocAsync(&a, MIB, stream), CUDA_SUCCESS);
		CHECK_IS(used(), 32 * MIB);
		CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
		CHECK_IS(free_bytes, 68 * MIB);
		CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
		CHECK_IS(cuEventRecord(event, stream), CUDA_SUCCESS);
		CHECK_IS(i == 0   ? cuStreamSynchronize(stream)
			 : i == 1 ? cuStreamSynchronize_ptsz(NULL)
			 : i == 2 ? cuCtxSynchronize()
				  : cuEventSynchronize(event),
			 CUDA_SUCCESS);
		CHECK_IS(used(), 0);
	}
}

static void what_a_pool_keeps_stays_charged_until_it_is_trimmed(void)
{
	CUdeviceptr a, b;

	begin(128);
	keep_everything(pool);
	CHECK_IS(cuMemAllocAsync(&a, 90 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(used(), 96 * MIB);
	/* It is there for the pool itself, */
	CHECK_IS(cuMemAllocAsync(&a, 96 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 96 * MIB);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	/* and for everything else of this process, as it would be without a limit. */
	CHECK_IS(cuMemAlloc_v2(&b, 128 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(step.ledger->refusals[0], 0);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 96 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemPoolTrimTo(pool, 40 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 40 * MIB);
	CHECK_IS(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* A chunk that a call could have taken and did not was never in use. */
static void what_a_pool_has_already_raises_no_peak(void)
{
	CUdeviceptr a;

	begin(128);
	keep_everything(pool);
	CHECK_IS(cuMemAllocAsync(&a, 20 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(step.ledger->peak_bytes[0], 32 * MIB);
	for (int i = 0; i < 10; i++) {
		CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
		CHECK_IS(cuMemAllocAsync(&a, 20 * MIB, stream), CUDA_SUCCESS);
	}
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(step.ledger->peak_bytes[0], 32 * MIB);
	CHECK_IS(step.ledger->step[0].peak_bytes[0], 32 * MIB);
	CHECK_IS(step.ledger->slot[0].may_take_bytes[0], 0);
}

/* The other process of what_a_pool_keeps_is_not_there_for_others. */
static int other_process(void)
{
	CUdeviceptr a;

	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 33 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocAsync(&a, 33 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocAsync(&a, 32 * MIB, NULL), CUDA_SUCCESS);
	return failures;
}

static void what_a_pool_keeps_is_not_there_for_others(void)
{
	CUdeviceptr a;

	begin(128);
	keep_everything(pool);
	CHECK_IS(cuMemAllocAsync(&a, 96 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(run_self("other"), 0);
	CHECK_IS(step.ledger->peak_bytes[0], 128 * MIB);
	CHECK_IS(cuMemAllocAsync(&a, 128 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
}

static void own_pools_are_charged_beyond_their_end(void)
{
	CUmemoryPool own;
	CUdeviceptr a, b;

	begin(200);
	own = own_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
	keep_everything(own);
	CHECK_IS(cuMemAllocFromPoolAsync(&a, 30 * MIB, own, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocFromPoolAsync(&b, 30 * MIB, own, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuMemPoolDestroy(own), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuMemFreeAsync(b, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	/* Not destroyed: still there. */
	CHECK(cuMemPoolDestroy(pool) != CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	for (int i = 0; i < 1000; i++) {
		own = own_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);
		CHECK_IS(cuMemAllocFromPoolAsync(&a, MIB, own, stream), CUDA_SUCCESS);
		CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
		CHECK_IS(cuMemPoolDestroy(own), CUDA_SUCCESS);
	}
	CHECK_IS(used(), 0);
}

static void the_pool_that_is_set_is_the_one_charged(void)
{
	CUmemoryPool own;
	CUdeviceptr a, b;

	begin(200);
	own = own_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0, 64 * MIB);
	CHECK_IS(cuDeviceSetMemPool(0, own), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 60 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	/* The pool's own maximum: the driver's error, and nothing charged for it. */
	CHECK_IS(cuMemAllocAsync(&b, 60 * MIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(step.ledger->refusals[0], 0);
	CHECK_IS(cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&b, 60 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 128 * MIB);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(b, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemPoolDestroy(own), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_pool_of_host_memory_is_free(void)
{
	CUmemoryPool own;
	CUdeviceptr a;

	begin(100);
	own = own_pool(CU_MEM_LOCATION_TYPE_HOST, 0, 0);
	CHECK_IS(cuMemAllocFromPoolAsync(&a, 500 * MIB, own, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemPoolDestroy(own), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_failed_allocation_leaves_what_the_pool_holds(void)
{
	CUdeviceptr a;

	begin(8192); /* more than the GPU has */
	CHECK_IS(cuMemAllocAsync(&a, MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuSimFailNext(1), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 100 * MIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocAsync(&a, 5000 * MIB, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocAsync(&a, SIZE_MAX, stream), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemAllocAsync(&a, 0, stream) != CUDA_SUCCESS);
	CHECK(cuMemAllocAsync(NULL, 1, stream) != CUDA_SUCCESS);
	CHECK(cuMemAllocAsync(&a, 1, (CUstream)0x777) != CUDA_SUCCESS);
	CHECK(cuMemAllocFromPoolAsync(&a, 1, (CUmemoryPool)0x777, stream) != CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(step.ledger->refusals[0], 1); /* SIZE_MAX */
}

/* The driver may give back what a pool holds unused without a call that says so. */
static void trim_unseen(void)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *trim = NULL;

	CHECK_IS(cuSimDlsym(driver, "cuMemPoolTrimTo", &trim), CUDA_SUCCESS);
	if (trim != NULL)
		CHECK_IS(((__typeof__(cuMemPoolTrimTo) *)trim)(pool, 0), CUDA_SUCCESS);
}

static void what_a_pool_has_given_back_is_told_as_free(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr a;

	begin(128);
	keep_everything(pool);
	CHECK_IS(cuMemAllocAsync(&a, 90 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 32 * MIB);
	trim_unseen();
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 128 * MIB);
	CHECK_IS(used(), 0);
}

/* Of the device's own, and those of a program. */
static void as_many_pools_as_there_are_places_are_charged(void)
{
	CUdeviceptr a;

	begin(64);
	CHECK_IS(cuMemAllocAsync(&a, MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	for (int i = 1; i < VGPU_KNOWN_POOLS; i++) {
		CUmemoryPool own = own_pool(CU_MEM_LOCATION_TYPE_DEVICE, 0, 0);

		CHECK_IS(cuMemAllocFromPoolAsync(&a, MIB, own, stream), CUDA_SUCCESS);
		CHECK_IS(used(), 32 * MIB);
		CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
		CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
		CHECK_IS(used(), 0);
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "other") == 0)
		return other_process();
	gpus(0);
	CASE(a_pool_costs_what_it_holds);
	CASE(every_synchronisation_is_seen);
	CASE(what_a_pool_keeps_stays_charged_until_it_is_trimmed);
	CASE(what_a_pool_has_already_raises_no_peak);
	CASE(what_a_pool_keeps_is_not_there_for_others);
	CASE(own_pools_are_charged_beyond_their_end);
	CASE(the_pool_that_is_set_is_the_one_charged);
	CASE(a_pool_of_host_memory_is_free);
	CASE(what_a_pool_has_given_back_is_told_as_free);
	CASE(as_many_pools_as_there_are_places_are_charged);
	CASE(a_failed_allocation_leaves_what_the_pool_holds);
	return summary();
}

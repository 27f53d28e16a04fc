/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Blocks that share granules of 2 MiB: charged by the granules that the driver really holds. */
#include "harness.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/wait.h>

#define GRANULE (2 * MIB)
#define MOST_BLOCKS 70000
#define PROCESSES 8
#define THREADS 4

CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count);

static struct step step;
static CUdeviceptr block[MOST_BLOCKS];

static uint64_t used(void)
{
	return step_used_bytes(&step);
}

static uint64_t held(void)
{
	size_t all = 0;

	CHECK_IS(cuSimHeld(0, NULL, &all), CUDA_SUCCESS);
	return all;
}

/* The most that was on the device since the last time. */
static uint64_t highest(void)
{
	size_t bytes = 0;

	CHECK_IS(cuSimHighest(0, &bytes), CUDA_SUCCESS);
	return bytes;
}

static void begin(uint64_t step_mib)
{
	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, step_mib, step_mib);
	cuda_begin(0);
	highest();
}

/* Until it is refused; how many there are then. */
static uint32_t fill(const uint64_t *bytes, uint32_t sizes)
{
	uint32_t count = 0;

	while (count < MOST_BLOCKS && cuMemAlloc_v2(&block[count], bytes[count % sizes]) == CUDA_SUCCESS) {
		count++;
		if (count % 64 == 0)
			CHECK_IS(used(), held());
	}
	return count;
}

static void free_all(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		CHECK_IS(cuMemFree_v2(block[i]), CUDA_SUCCESS);
}

static void small_blocks_end_at_the_limit(void)
{
	static const uint64_t sizes[] = {600 << 10, 5000, 64 << 10, 1, 512, MIB, MIB - 1, 300000, 700 << 10};

	begin(64);
	for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
		uint64_t each = (sizes[s] + 511) / 512 * 512;
		uint64_t in_granule = sizes[s] < MIB ? GRANULE / each : 1;
		uint32_t count = fill(&sizes[s], 1);

		/* All granules but the last one are full. */
		CHECK(count > 31 * in_granule || count == MOST_BLOCKS);
		CHECK_IS(used(), held());
		CHECK(highest() <= 64 * MIB);
		free_all(count);
		CHECK_IS(used(), 0);
		CHECK_IS(held(), 0);
	}
}

static void mixed_sizes_end_at_the_limit(void)
{
	static const uint64_t sizes[] = {600 << 10, 5000, 64 << 10, 3 * MIB, 1, 900 << 10, 1200};
	uint32_t count;

	begin(64);
	count = fill(sizes, sizeof(sizes) / sizeof(sizes[0]));
	CHECK(used() > 58 * MIB);
	CHECK_IS(used(), held());
	CHECK(highest() <= 64 * MIB);
	/* Granules with holes stay charged, and are used again. */
	for (uint32_t i = 0; i < count; i += 2)
		CHECK_IS(cuMemFree_v2(block[i]), CUDA_SUCCESS);
	CHECK_IS(used(), held());
	for (uint32_t i = 0; i < count; i += 2) {
		if (cuMemAlloc_v2(&block[i], 2000) != CUDA_SUCCESS)
			block[i] = 0;
	}
	CHECK_IS(used(), held());
	CHECK(highest() <= 64 * MIB);
	free_all(count);
	CHECK_IS(used(), 0);
}

/* There may be a place for it, but only the driver knows, and when it answers it is too late. */
static void without_a_granule_left_a_small_block_is_refused(void)
{
	CUdeviceptr big, a, b;

	begin(8);
	CHECK_IS(cuMemAlloc_v2(&a, 1000), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&big, 5 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 8 * MIB);
	CHECK_IS(cuMemAlloc_v2(&b, 1000), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemFree_v2(big), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 1000), CUDA_SUCCESS);
	CHECK_IS(used(), 2 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(used(), 2 * MIB);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void contexts_do_not_share_granules(void)
{
	CUcontext first, second;
	CUdeviceptr a, b, c;

	begin(64);
	CHECK_IS(cuCtxGetCurrent(&first), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 1000), CUDA_SUCCESS);
	CHECK_IS(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 1000), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&c, 600 << 10), CUDA_SUCCESS);
	CHECK_IS(used(), 4 * MIB);
	CHECK_IS(held(), 4 * MIB);
	CHECK_IS(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	CHECK_IS(used(), 2 * MIB);
	CHECK_IS(held(), 2 * MIB);
	CHECK_IS(cuCtxSetCurrent(first), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_block_that_was_freed_unseen_is_not_counted_twice(void)
{
	CUresult (*lookup)(void *, const char *, void **);
	CUresult (*free_unseen)(CUdeviceptr);
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUdeviceptr a, b;

	begin(64);
	*(void **)&lookup = dlsym(driver, "cuSimDlsym");
	CHECK_IS(lookup(driver, "cuMemFree_v2", (void **)&free_unseen), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 1000), CUDA_SUCCESS);
	CHECK_IS(free_unseen(a), CUDA_SUCCESS);
	CHECK_IS(used(), 2 * MIB);
	CHECK_IS(cuMemAlloc_v2(&b, 1000), CUDA_SUCCESS);
	CHECK_IS(b, a);
	CHECK_IS(used(), 2 * MIB);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void small_pitched_and_managed_blocks_are_counted_by_granules(void)
{
	CUdeviceptr a, b, managed;
	size_t pitch;

	begin(64);
	CHECK_IS(cuMemAllocPitch_v2(&a, &pitch, 1000, 100, 4), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocPitch_v2(&b, &pitch, 1000, 100, 4), CUDA_SUCCESS);
	CHECK_IS(used(), 2 * MIB);
	CHECK_IS(held(), used());
	CHECK_IS(cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(used(), 4 * MIB);
	CHECK_IS(cuMemFree_v2(managed), CUDA_SUCCESS);
	CHECK_IS(used(), 2 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* Until it is refused, and touched at once; how many there are then. */
static uint32_t fill_managed(uint64_t bytes)
{
	uint32_t count = 0;

	while (count < MOST_BLOCKS &&
	       cuMemAllocManaged(&block[count], bytes, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS) {
		CHECK_IS(cuMemsetD8_v2(block[count], 0, bytes), CUDA_SUCCESS);
		count++;
	}
	return count;
}

static void managed_blocks_end_at_the_limit(void)
{
	/* How many fit into 64 MiB: of small ones those that lie in 32 granules, with one granule to spare
	 * before the last. */
	static const struct {
		uint64_t bytes;
		uint32_t least, most;
	} size[] = {
		{100 << 10, 31 * 20, 32 * 20}, {600 << 10, 31 * 3, 32 * 3}, {MIB, 31 * 2, 32 * 2},
		{MIB + 1, 32, 32}, {2 * MIB + 1, 31, 31}, {3 * MIB, 21, 21}, {5 * MIB, 12, 12},
	};

	begin(64);
	for (size_t s = 0; s < sizeof(size) / sizeof(size[0]); s++) {
		uint32_t count = fill_managed(size[s].bytes);

		CHECK(count >= size[s].least && count <= size[s].most);
		CHECK_IS(used(), held());
		CHECK(highest() <= 64 * MIB);
		free_all(count);
		CHECK_IS(used(), 0);
		CHECK_IS(held(), 0);
	}
}

static void without_a_granule_left_a_small_managed_block_is_refused(void)
{
	CUdeviceptr big, a;

	begin(8);
	CHECK_IS(cuMemAllocManaged(&big, 7 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocManaged(&a, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 7 * MIB);
	CHECK_IS(cuMemFree_v2(big), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocManaged(&big, 6 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocManaged(&a, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(used(), 8 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(big), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void small_blocks_that_the_driver_refuses_leave_nothing(void)
{
	CUdeviceptr a;
	size_t pitch;

	begin(64);
	CHECK_IS(cuSimFailNext(2), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 1000), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocPitch_v2(&a, &pitch, 1000, 100, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemAllocManaged(&a, 0, CU_MEM_ATTACH_GLOBAL) != CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static CUcontext racing_context;

static void *race(void *argument)
{
	uint32_t seed = (uint32_t)(uintptr_t)argument;
	CUdeviceptr pointer[64] = {0};

	cuCtxSetCurrent(racing_context);
	for (int round = 0; round < 3000; round++) {
		uint32_t i;

		seed = seed * 1664525u + 1013904223u;
		i = (seed >> 8) % 64;
		if (pointer[i] != 0) {
			CHECK_IS(cuMemFree_v2(pointer[i]), CUDA_SUCCESS);
			pointer[i] = 0;
		} else if (cuMemAlloc_v2(&pointer[i], 1 + (seed >> 14) % ((seed & 64) != 0 ? MIB : 20000)) !=
			   CUDA_SUCCESS) {
			pointer[i] = 0;
		}
	}
	for (int i = 0; i < 64; i++) {
		if (pointer[i] != 0)
			CHECK_IS(cuMemFree_v2(pointer[i]), CUDA_SUCCESS);
	}
	return NULL;
}

static int race_process(uint32_t number)
{
	pthread_t thread[THREADS];

	if (freopen("/dev/null", "w", stdout) == NULL)
		return 1;
	cuda_begin(0);
	cuCtxGetCurrent(&racing_context);
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, race, (void *)(uintptr_t)(number * 100 + i));
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	return failures != 0;
}

static void racing_processes_with_small_blocks_never_pass_the_limit(void)
{
	pid_t pid[PROCESSES];

	gpus(0);
	step = step_make(1, 0, 24, 24);
	for (uint32_t i = 0; i < PROCESSES; i++) {
		if ((pid[i] = fork()) == 0)
			_exit(race_process(i + 1));
	}
	for (uint32_t i = 0; i < PROCESSES; i++) {
		int status = -1;

		waitpid(pid[i], &status, 0);
		CHECK_IS(status, 0);
	}
	CHECK(step.ledger->refusals[0] > 0); /* else the limit was never near */
	cuda_begin(0);
	CHECK(highest() <= 24 * MIB);
	CHECK_IS(used(), 0);
}

int main(void)
{
	gpus(0);
	CASE(small_blocks_end_at_the_limit);
	CASE(mixed_sizes_end_at_the_limit);
	CASE(without_a_granule_left_a_small_block_is_refused);
	CASE(contexts_do_not_share_granules);
	CASE(a_block_that_was_freed_unseen_is_not_counted_twice);
	CASE(small_pitched_and_managed_blocks_are_counted_by_granules);
	CASE(managed_blocks_end_at_the_limit);
	CASE(without_a_granule_left_a_small_managed_block_is_refused);
	CASE(small_blocks_that_the_driver_refuses_leave_nothing);
	CASE(racing_processes_with_small_blocks_never_pass_the_limit);
	return summary();
}

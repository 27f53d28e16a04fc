/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that a descriptor keeps is charged until that is closed. */
#include "harness.h"

#include <fcntl.h>
#include <time.h>

static struct step step;

static const CUmemAllocationProp shareable = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .requestedHandleTypes =
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static void begin(void)
{
	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, 100, 100);
	cuda_begin(0);
}

/* Charged is what the driver has given out, to the byte. */
static void check_used(uint64_t bytes)
{
	size_t own;

	CHECK_IS(step_slots_bytes(&step), bytes);
	CHECK_IS(step.ledger->used_bytes[0], bytes);
	CHECK_IS(cuSimHeld(0, &own, NULL), CUDA_SUCCESS);
	CHECK_IS(own, bytes);
}

/* So much, and not a granule more, is left: the refusal finds what was closed. */
static void check_left(uint64_t bytes)
{
	CUdeviceptr a;

	CHECK_IS(cuMemAlloc_v2(&a, bytes + 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, bytes), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
}

static int of_range(CUdeviceptr address, size_t size)
{
	int fd = -1;

	CHECK_IS(cuMemGetHandleForAddressRange(&fd, address, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
		 CUDA_SUCCESS);
	return fd;
}

static int of_handle(CUmemGenericAllocationHandle handle)
{
	int fd = -1;

	CHECK_IS(cuMemExportToShareableHandle(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	return fd;
}

static void a_freed_block_is_charged_while_its_descriptor_is_open(void)
{
	CUdeviceptr a;
	int fd;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	fd = of_range(a, 60 * MIB);
	check_used(60 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	check_used(60 * MIB);
	check_left(40 * MIB);
	CHECK_IS(close(fd), 0);
	check_left(100 * MIB);
	check_used(0);
}

static void a_part_of_a_block_keeps_all_of_it(void)
{
	CUdeviceptr a;
	int fd;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	fd = of_range(a + 10 * MIB, MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	check_used(60 * MIB);
	CHECK_IS(close(fd), 0);
	check_left(100 * MIB);
}

static void a_descriptor_that_was_closed_before_the_free_keeps_nothing(void)
{
	CUdeviceptr a;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(close(of_range(a, 60 * MIB)), 0);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	check_used(0);
}

static void the_last_of_several_descriptors_counts(void)
{
	CUdeviceptr a;
	int first, second, copy;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	first = of_range(a, 60 * MIB);
	second = of_range(a, 60 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(close(first), 0);
	check_left(40 * MIB);
	copy = dup(second);
	CHECK_IS(close(second), 0);
	check_left(40 * MIB);
	check_used(60 * MIB);
	CHECK_IS(close(copy), 0);
	check_left(100 * MIB);
	check_used(0);
}

static void a_released_handle_is_charged_while_its_descriptor_is_open(void)
{
	CUmemGenericAllocationHandle a;
	int fd;

	begin();
	CHECK_IS(cuMemCreate(&a, 60 * MIB, &shareable, 0), CUDA_SUCCESS);
	fd = of_handle(a);
	CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	check_used(60 * MIB);
	check_left(40 * MIB);
	CHECK_IS(close(fd), 0);
	check_left(100 * MIB);
	check_used(0);
}

/* The mapping and a second descriptor, of its addresses, keep what the handle's has kept. */
static void unmapped_memory_is_charged_while_a_descriptor_is_open(void)
{
	CUmemGenericAllocationHandle a[2];
	CUdeviceptr at;
	int fd;

	begin();
	CHECK_IS(cuMemAddressReserve(&at, 60 * MIB, 0, 0, 0), CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		CHECK_IS(cuMemCreate(&a[i], 30 * MIB, &shareable, 0), CUDA_SUCCESS);
		CHECK_IS(cuMemMap(at + (CUdeviceptr)i * 30 * MIB, 30 * MIB, 0, a[i], 0), CUDA_SUCCESS);
		CHECK_IS(cuMemRelease(a[i]), CUDA_SUCCESS);
	}
	fd = of_range(at, 60 * MIB);
	CHECK_IS(cuMemUnmap(at, 60 * MIB), CUDA_SUCCESS);
	check_used(60 * MIB);
	check_left(40 * MIB);
	CHECK_IS(close(fd), 0);
	check_left(100 * MIB);
	check_used(0);
}

/* Of three mappings side by side only those that the range touches: within one, from the middle of one, up to
 * the next. */
static void a_range_keeps_what_it_touches_and_nothing_else(void)
{
	static const struct {
		uint64_t from, size, kept;
	} ranges[] = {{25, 10, 20}, {20, 20, 20}, {0, 20, 20},	{0, 40, 40},
		      {10, 30, 40}, {39, 2, 40},  {40, 20, 20}, {0, 60, 60}};

	begin();
	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]); i++) {
		CUmemGenericAllocationHandle a;
		CUdeviceptr at;
		int fd;

		CHECK_IS(cuMemAddressReserve(&at, 60 * MIB, 0, 0, 0), CUDA_SUCCESS);
		for (uint64_t mib = 0; mib < 60; mib += 20) {
			CHECK_IS(cuMemCreate(&a, 20 * MIB, &shareable, 0), CUDA_SUCCESS);
			CHECK_IS(cuMemMap(at + mib * MIB, 20 * MIB, 0, a, 0), CUDA_SUCCESS);
			CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
		}
		fd = of_range(at + ranges[i].from * MIB, ranges[i].size * MIB);
		CHECK_IS(cuMemUnmap(at, 60 * MIB), CUDA_SUCCESS);
		check_used(ranges[i].kept * MIB);
		CHECK_IS(close(fd), 0);
		check_left(100 * MIB);
		CHECK_IS(cuMemAddressFree(at, 60 * MIB), CUDA_SUCCESS);
	}
}

/* Other blocks live in its granule, which is then charged for both. */
static void a_small_blocks_granule_is_charged_while_its_descriptor_is_open(void)
{
	CUdeviceptr a, b;
	int fd;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 4096), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 4096), CUDA_SUCCESS);
	fd = of_range(a, 4096);
	CHECK_IS(step_slots_bytes(&step), 2 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(step_slots_bytes(&step), 4 * MIB);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(step_slots_bytes(&step), 2 * MIB);
	CHECK_IS(close(fd), 0);
	check_left(100 * MIB);
	check_used(0);
}

static void descriptors_that_are_not_given_out_change_nothing(void)
{
	CUdeviceptr a;
	int fd = 5;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK(cuMemGetHandleForAddressRange(&fd, a, 80 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) !=
	      CUDA_SUCCESS);
	CHECK(cuMemGetHandleForAddressRange(&fd, a, 60 * MIB, 2, 0) != CUDA_SUCCESS);
	CHECK(cuMemGetHandleForAddressRange(NULL, a, 60 * MIB, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) !=
	      CUDA_SUCCESS);
	CHECK(cuMemGetHandleForAddressRange(&fd, 12345, 4096, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0) !=
	      CUDA_SUCCESS);
	CHECK_IS(fd, 5);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	check_used(0);
}

static void what_ends_with_its_context_is_charged_while_a_descriptor_is_open(void)
{
	CUcontext context;
	CUdeviceptr a;
	int fd;

	begin();
	CHECK_IS(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	fd = of_range(a, 60 * MIB);
	CHECK_IS(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	CHECK_IS(step_slots_bytes(&step), 60 * MIB);
	CHECK_IS(close(fd), 0);
	cuda_begin(0);
	check_left(100 * MIB);
	check_used(0);
}

/* The number is used again, for another file and for another descriptor of memory. */
static void a_number_that_is_used_again_is_another_descriptor(void)
{
	CUdeviceptr a, b;
	int fd, again;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	fd = of_range(a, 60 * MIB);
	CHECK_IS(close(fd), 0);
	CHECK_IS(open("/dev/null", O_RDONLY), fd);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	check_used(0);
	CHECK_IS(close(fd), 0);
	CHECK_IS(cuMemAlloc_v2(&a, 20 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 30 * MIB), CUDA_SUCCESS);
	fd = of_range(a, 20 * MIB);
	CHECK_IS(close(fd), 0);
	again = of_range(b, 30 * MIB);
	CHECK_IS(again, fd);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	check_used(30 * MIB);
	CHECK_IS(close(again), 0);
	check_left(100 * MIB);
}

/* Nobody has to be refused for it: it is looked for every 100 ms. */
static void a_close_is_seen_in_time(void)
{
	const struct timespec pause = {0, 10000000};
	size_t free_bytes = 0, total_bytes;
	CUdeviceptr a;
	int fd;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	fd = of_range(a, 60 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(close(fd), 0);
	for (int i = 0; i < 500 && free_bytes != 100 * MIB; i++) {
		CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
		nanosleep(&pause, NULL);
	}
	CHECK_IS(free_bytes, 100 * MIB);
	check_used(0);
}

int main(void)
{
	gpus(0);
	CASE(a_freed_block_is_charged_while_its_descriptor_is_open);
	CASE(a_part_of_a_block_keeps_all_of_it);
	CASE(a_descriptor_that_was_closed_before_the_free_keeps_nothing);
	CASE(the_last_of_several_descriptors_counts);
	CASE(a_released_handle_is_charged_while_its_descriptor_is_open);
	CASE(unmapped_memory_is_charged_while_a_descriptor_is_open);
	CASE(a_range_keeps_what_it_touches_and_nothing_else);
	CASE(a_small_blocks_granule_is_charged_while_its_descriptor_is_open);
	CASE(descriptors_that_are_not_given_out_change_nothing);
	CASE(what_ends_with_its_context_is_charged_while_a_descriptor_is_open);
	CASE(a_number_that_is_used_again_is_another_descriptor);
	CASE(a_close_is_seen_in_time);
	return summary();
}

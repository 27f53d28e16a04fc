/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#define SMALL_NODE "devices=2\nmem_mib=1000\ncontext_mib=100\n"

TEST(a_device_can_be_filled_to_its_last_granule_and_no_further)
{
	CUdeviceptr p, q;

	configure(SMALL_NODE);
	start_cuda();
	EQ(free_mib(), 900);
	OK(cuMemAlloc_v2(&p, 900 * SIM_MIB));
	EQ(free_mib(), 0);
	EQ(cuMemAlloc_v2(&q, 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree_v2(p));
	OK(cuMemAlloc_v2(&q, 1));
	EQ(free_mib(), 898);
	EQ(cuMemAlloc_v2(&p, ~(size_t)0), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST(physical_memory_is_counted_in_granules_and_small_blocks_share_them)
{
	CUdeviceptr p, small[100];

	configure(SMALL_NODE);
	start_cuda();
	OK(cuMemAlloc_v2(&p, 3 * SIM_MIB));
	EQ(used_mib(), 104);
	for (int i = 0; i < 100; i++)
		OK(cuMemAlloc_v2(&small[i], 1000));
	EQ(used_mib(), 106);
	for (int i = 0; i < 100; i++)
		OK(cuMemFree_v2(small[i]));
	EQ(used_mib(), 104);
}

TEST(a_granule_holds_as_many_small_blocks_as_fit_into_it)
{
	CUdeviceptr p[410], q;
	CUcontext second;

	configure(SMALL_NODE);
	start_cuda();
	for (int i = 0; i < 3; i++)
		OK(cuMemAlloc_v2(&p[i], 600 << 10));
	EQ(used_mib(), 102);
	TRUE(p[0] / SIM_GRANULE_BYTES == p[2] / SIM_GRANULE_BYTES);
	OK(cuMemAlloc_v2(&q, 600 << 10));
	EQ(used_mib(), 104);
	for (int i = 0; i < 3; i++)
		OK(cuMemFree_v2(p[i]));
	EQ(used_mib(), 102);
	OK(cuMemFree_v2(q));
	for (int i = 0; i < 410; i++)
		OK(cuMemAlloc_v2(&p[i], 5000));
	EQ(used_mib(), 104); /* 409 are in the first one */
	OK(cuCtxCreate_v2(&second, 0, 0));
	OK(cuMemAlloc_v2(&q, 1));
	EQ(used_mib(), 206);
	OK(cuCtxDestroy_v2(second));
	EQ(used_mib(), 104);
}

TEST(a_process_pays_for_each_of_its_contexts)
{
	CUcontext primary, second;

	configure(SMALL_NODE);
	primary = start_cuda();
	EQ(used_mib(), 100);
	OK(cuCtxCreate_v2(&second, 0, 0));
	EQ(used_mib(), 200);
	OK(cuCtxDestroy_v2(second));
	EQ(used_mib(), 100);
	EQ(cuCtxDestroy_v2(primary), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuDevicePrimaryCtxRelease_v2(0));
	EQ(used_mib(), 0);
	EQ(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(the_end_of_a_context_frees_its_blocks)
{
	CUdeviceptr p;
	CUcontext ctx;

	configure(SMALL_NODE);
	start_cuda();
	OK(cuMemAlloc_v2(&p, 200 * SIM_MIB));
	OK(cuCtxCreate_v2(&ctx, 0, 0));
	OK(cuMemAlloc_v2(&p, 300 * SIM_MIB));
	EQ(used_mib(), 700);
	OK(cuCtxDestroy_v2(ctx));
	EQ(used_mib(), 300);
	EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	OK(cuDevicePrimaryCtxReset_v2(0));
	EQ(used_mib(), 0);
	EQ(cuMemAlloc_v2(&p, 1), CUDA_ERROR_INVALID_CONTEXT);
}

TEST(frees_of_what_was_not_allocated_are_refused)
{
	CUdeviceptr p;
	void *host;

	configure(SMALL_NODE);
	start_cuda();
	OK(cuMemAlloc_v2(&p, 4 * SIM_MIB));
	EQ(cuMemFree_v2(p + 512), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(p));
	EQ(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemFree_v2(12345), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(0));
	OK(cuMemHostAlloc(&host, 4096, 0));
	EQ(cuMemFree_v2((uintptr_t)host), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFreeHost(host));
	EQ(used_mib(), 100);
}

TEST(missing_outputs_and_zero_sizes_are_refused)
{
	CUdeviceptr p;
	size_t n;

	configure(SMALL_NODE);
	start_cuda();
	EQ(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemAllocManaged(NULL, 1, 1), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemAllocManaged(&p, 1, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemAllocAsync(NULL, 1, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemAllocPitch_v2(&p, NULL, 1, 1, 4), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemGetInfo_v2(NULL, &n), CUDA_ERROR_INVALID_VALUE);
	EQ(cuDeviceTotalMem_v2(NULL, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemCreate(NULL, 2 * SIM_MIB, NULL, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST(functions_without_v2_give_32_bit_addresses_and_sizes)
{
	unsigned free_bytes, total_bytes, pitch;
	CUdeviceptr_v1 p, q;
	CUdeviceptr wide;

	configure("mem_mib=143771\n");
	start_cuda();
	OK(cuMemAlloc(&p, 1000));
	OK(cuMemAllocPitch(&q, &pitch, 1000, 10, 4));
	TRUE(p != 0 && q != 0 && p != q && pitch == 1024);
	OK(cuMemAlloc_v2(&wide, 1000));
	TRUE(wide > UINT32_MAX);
	OK(cuMemGetInfo(&free_bytes, &total_bytes));
	EQ(free_bytes, UINT32_MAX);
	OK(cuMemFree(p));
	EQ(cuMemFree(p), CUDA_ERROR_INVALID_VALUE);
}

TEST(memory_by_handle_lives_until_the_last_reference_and_mapping)
{
	CUmemAllocationProp prop = { .type = 1, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	CUmemAccessDesc access = { { CU_MEM_LOCATION_TYPE_DEVICE, 0 }, 3 };
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr at;

	configure(SMALL_NODE);
	start_cuda();
	EQ(cuMemCreate(&handle, SIM_MIB, &prop, 0), CUDA_ERROR_INVALID_VALUE);
	EQ(cuMemCreate(&handle, 2000 * SIM_MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemCreate(&handle, 200 * SIM_MIB, &prop, 0));
	OK(cuMemAddressReserve(&at, 400 * SIM_MIB, 0, 0, 0));
	EQ(used_mib(), 300);
	OK(cuMemMap(at, 200 * SIM_MIB, 0, handle, 0));
	OK(cuMemMap(at + 200 * SIM_MIB, 200 * SIM_MIB, 0, handle, 0));
	EQ(cuMemMap(at, 200 * SIM_MIB, 0, handle, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemSetAccess(at, 400 * SIM_MIB, &access, 1));
	OK(cuMemRelease(handle));
	EQ(cuMemRelease(handle), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemUnmap(at, 200 * SIM_MIB));
	EQ(used_mib(), 300);
	EQ(cuMemAddressFree(at, 400 * SIM_MIB), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(at + 201 * SIM_MIB)));
	EQ(again, handle);
	OK(cuMemUnmap(at + 200 * SIM_MIB, 200 * SIM_MIB));
	EQ(used_mib(), 300);
	OK(cuMemRelease(again));
	EQ(used_mib(), 100);
	OK(cuMemAddressFree(at, 400 * SIM_MIB));
}

TEST(a_pool_keeps_memory_until_a_synchronisation)
{
	CUmemPoolProps props = { .allocType = 1, .location = { CU_MEM_LOCATION_TYPE_DEVICE, 0 } };
	cuuint64_t value, threshold = 64 * SIM_MIB;
	CUmemoryPool pool;
	CUdeviceptr p;

	configure(SMALL_NODE);
	start_cuda();
	OK(cuMemAllocAsync(&p, 1000, NULL));
	EQ(used_mib(), 132);
	OK(cuMemFreeAsync(p, NULL));
	EQ(used_mib(), 132);
	OK(cuStreamSynchronize(NULL));
	EQ(used_mib(), 100);
	EQ(cuMemFreeAsync(p, NULL), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemPoolCreate(&pool, &props));
	OK(cuMemPoolSetAttribute(pool, SIM_POOL_RELEASE_THRESHOLD, &threshold));
	OK(cuMemAllocFromPoolAsync(&p, 100 * SIM_MIB, pool, NULL));
	OK(cuMemPoolGetAttribute(pool, SIM_POOL_RESERVED_CURRENT, &value));
	EQ(value, 128 * SIM_MIB);
	OK(cuMemFree_v2(p)); /* either kind of free takes it */
	OK(cuCtxSynchronize());
	EQ(used_mib(), 164);
	OK(cuMemPoolTrimTo(pool, 0));
	EQ(used_mib(), 100);
	OK(cuMemAllocFromPoolAsync(&p, 890 * SIM_MIB, pool, NULL));
	EQ(cuMemAllocAsync(&p, 20 * SIM_MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemPoolDestroy(pool));
	EQ(cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

TEST(managed_memory_is_the_hosts_until_the_device_uses_it)
{
	CUdeviceptr p;

	configure(SMALL_NODE);
	start_cuda();
	OK(cuMemAllocManaged(&p, 64 * SIM_MIB, CU_MEM_ATTACH_GLOBAL));
	*(volatile int *)(uintptr_t)p = 7;
	EQ(used_mib(), 100);
	OK(cuMemPrefetchAsync(p, 64 * SIM_MIB, 0, NULL));
	EQ(used_mib(), 228); /* as all managed memory of the device, in pieces of 128 MiB */
	EQ(*(volatile int *)(uintptr_t)p, 7);
	OK(cuMemsetD8_v2(p, 0, 64 * SIM_MIB));
	EQ(*(volatile int *)(uintptr_t)p, 0);
	OK(cuMemFree_v2(p));
	EQ(used_mib(), 100);
}

TEST(managed_blocks_are_counted_to_64_kib_and_small_ones_by_granules)
{
	CUdeviceptr p[100];
	size_t own;

	configure(SMALL_NODE);
	start_cuda();
	OK(cuMemAllocManaged(&p[0], 3 * SIM_MIB - 1, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemsetD8_v2(p[0], 1, 3 * SIM_MIB - 1));
	OK(cuSimHeld(0, &own, NULL));
	EQ(own, 103 * SIM_MIB);
	OK(cuMemFree_v2(p[0]));
	OK(cuMemAllocManaged(&p[0], 2 * SIM_MIB + 1, CU_MEM_ATTACH_GLOBAL));
	OK(cuMemsetD8_v2(p[0], 1, 2 * SIM_MIB + 1));
	OK(cuSimHeld(0, &own, NULL));
	EQ(own, 102 * SIM_MIB + SIM_MANAGED_BYTES);
	OK(cuMemFree_v2(p[0]));
	for (int i = 0; i < 21; i++) {
		OK(cuMemAllocManaged(&p[i], 100 << 10, CU_MEM_ATTACH_GLOBAL));
		*(volatile char *)(uintptr_t)p[i] = (char)i;
	}
	OK(cuSimHeld(0, &own, NULL));
	EQ(own, 100 * SIM_MIB);
	for (int i = 0; i < 21; i++)
		OK(cuMemPrefetchAsync(p[i], 100 << 10, 0, NULL));
	OK(cuSimHeld(0, &own, NULL));
	EQ(own, 104 * SIM_MIB);
	for (int i = 0; i < 21; i++)
		EQ(*(volatile char *)(uintptr_t)p[i], i);
	OK(cuMemPrefetchAsync(p[20], 100 << 10, -1, NULL));
	for (int i = 1; i < 20; i++)
		OK(cuMemFree_v2(p[i]));
	OK(cuSimHeld(0, &own, NULL));
	EQ(own, 102 * SIM_MIB);
	OK(cuMemFree_v2(p[0]));
	OK(cuMemFree_v2(p[20]));
	OK(cuSimHeld(0, &own, NULL));
	EQ(own, 100 * SIM_MIB);
}

/* What an H200 (driver 580) took more for managed blocks of one size, each case in a process of its own. */
TEST(managed_blocks_take_what_an_h200_took)
{
	static const struct {
		uint64_t kib, count, mib;
	} measured[] = {
		{ 64, 8192, 512 },	{ 100, 8192, 896 },	{ 600, 3072, 2048 },	{ 1024, 1800, 1920 },
		{ 2048, 900, 1920 },	{ 3072, 600, 1920 },	{ 5120, 360, 1920 },	{ 8192, 225, 1920 },
		{ 24 << 10, 75, 1920 }, { 100 << 10, 18, 1920 }, { 64 << 10, 28, 1792 }, { 1024 << 10, 1, 1024 },
		{ 3072, 200, 640 },	{ 3072, 800, 2432 },	{ 3072, 1600, 4864 },	{ 64 << 10, 9, 640 },
		{ 64 << 10, 37, 2432 }, { 64 << 10, 75, 4864 },	{ 1126, 2206, 4480 },
	};
	static CUdeviceptr p[8192];

	configure("mem_mib=8000\ncontext_mib=100\n");
	start_cuda();
	for (size_t m = 0; m < sizeof(measured) / sizeof(measured[0]); m++) {
		test_row("%d blocks of %d KiB", (int)measured[m].count, (int)measured[m].kib);
		for (uint64_t i = 0; i < measured[m].count; i++) {
			OK(cuMemAllocManaged(&p[i], measured[m].kib << 10, CU_MEM_ATTACH_GLOBAL));
			OK(cuMemsetD8_v2(p[i], 0, measured[m].kib << 10));
		}
		EQ(used_mib(), 100 + measured[m].mib);
		for (uint64_t i = 0; i < measured[m].count; i++)
			OK(cuMemFree_v2(p[i]));
		EQ(used_mib(), 100);
	}
}

TEST(pointers_tell_their_device_and_range)
{
	CUdeviceptr p, base;
	int ordinal;
	size_t size;

	configure(SMALL_NODE);
	start_cuda();
	OK(cuMemAlloc_v2(&p, 5 * SIM_MIB));
	OK(cuMemGetAddressRange_v2(&base, &size, p + 77));
	TRUE(base == p && size == 5 * SIM_MIB);
	OK(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, p + 77));
	EQ(ordinal, 0);
	EQ(cuMemsetD8_v2(p, 1, 100 * SIM_MIB), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree_v2(p));
	EQ(cuMemGetAddressRange_v2(&base, &size, p), CUDA_ERROR_NOT_FOUND);
}

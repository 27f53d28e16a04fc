/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Pools that are named by their place, managed ones, and those of other processes. */
#include "harness.h"

CUresult cuMemSetMemPool(CUmemLocation *location, int type, CUmemoryPool pool);
CUresult cuMemPoolExportToShareableHandle(void *shared, CUmemoryPool pool, int type,
					  unsigned long long flags);
CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool, void *shared, int type,
					    unsigned long long flags);
CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *data, CUdeviceptr pointer);
CUresult cuMemPoolImportPointer(CUdeviceptr *pointer, CUmemoryPool pool, CUmemPoolPtrExportData *data);

static struct step step;
static CUstream stream;

static uint64_t used(void)
{
	return step_used_bytes(&step);
}

static void begin(uint64_t limit_mib)
{
	gpus(0);
	step = step_make(1000 + (uint32_t)getpid(), 0, limit_mib, limit_mib);
	cuda_begin(0);
	CHECK_IS(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
}

static CUmemoryPool own_pool(int type, CUmemLocationType place, size_t most)
{
	CUmemPoolProps props = {.allocType = type, .location = {place, 0}, .maxSize = most};
	CUmemoryPool made = NULL;

	CHECK_IS(cuMemPoolCreate(&made, &props), CUDA_SUCCESS);
	return made;
}

static void the_pool_that_is_set_for_a_place_is_the_one_charged(void)
{
	CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUmemoryPool own, now;
	uint64_t keep = UINT64_MAX;
	CUdeviceptr a;

	begin(200);
	own = own_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 64 * MIB);
	CHECK_IS(cuMemPoolSetAttribute(own, 4 /* the release threshold */, &keep), CUDA_SUCCESS);
	CHECK_IS(cuMemSetMemPool(&device, CU_MEM_ALLOCATION_TYPE_PINNED, own), CUDA_SUCCESS);
	CHECK_IS(cuMemGetMemPool(&now, &device, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
	CHECK_IS((uintptr_t)now, (uintptr_t)own);
	CHECK_IS(cuMemAllocAsync(&a, 60 * MIB, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuMemAllocAsync(&a, 60 * MIB, stream),
		 CUDA_ERROR_OUT_OF_MEMORY); /* the pool's own maximum */
	CHECK_IS(step.ledger->refusals[0], 0);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	/* What it keeps is charged, until the pool is trimmed. */
	CHECK_IS(cuCtxSynchronize_v2(NULL), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuMemPoolTrimTo(own, 0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(driver_used_bytes(0), 0);
	/* What a synchronisation takes from the default pool is seen. */
	CHECK_IS(cuMemPoolDestroy(own), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, MIB, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuCtxSynchronize_v2(NULL), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void the_drivers_pool_of_the_host_is_free(void)
{
	CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0}, device = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
	CUmemoryPool of_host, again, of_device, same;
	CUdeviceptr a;

	begin(100);
	CHECK_IS(cuMemGetDefaultMemPool(&of_host, &host, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocFromPoolAsync(&a, 500 * MIB, of_host, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemGetMemPool(&again, &host, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
	CHECK_IS((uintptr_t)again, (uintptr_t)of_host);
	CHECK_IS(cuMemGetDefaultMemPool(&of_device, &device, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGetDefaultMemPool(&same, 0), CUDA_SUCCESS);
	CHECK_IS((uintptr_t)same, (uintptr_t)of_device);
	CHECK_IS(cuMemAllocFromPoolAsync(&a, 60 * MIB, of_device, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 64 * MIB);
	CHECK(cuMemGetDefaultMemPool(&same, NULL, CU_MEM_ALLOCATION_TYPE_PINNED) != CUDA_SUCCESS);
}

/* The same when the program has only asked for the one that is set. */
static void the_hosts_pool_that_is_set_is_free(void)
{
	CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
	CUmemoryPool of_host;
	CUdeviceptr a;

	begin(100);
	CHECK_IS(cuMemGetMemPool(&of_host, &host, CU_MEM_ALLOCATION_TYPE_PINNED), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocFromPoolAsync(&a, 500 * MIB, of_host, stream), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* As all managed memory: in full, from allocation to free, wherever it lies. */
static void managed_pools_are_charged_by_the_block(void)
{
	static const CUmemLocationType places[] = {CU_MEM_LOCATION_TYPE_INVALID, CU_MEM_LOCATION_TYPE_DEVICE,
						   CU_MEM_LOCATION_TYPE_HOST};
	CUdeviceptr a, b;

	begin(100);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		CUmemoryPool managed = own_pool(CU_MEM_ALLOCATION_TYPE_MANAGED, places[i], 0);

		CHECK_IS(cuMemAllocFromPoolAsync(&a, 60 * MIB, managed, stream), CUDA_SUCCESS);
		CHECK_IS(used(), 60 * MIB);
		CHECK_IS(cuMemAllocFromPoolAsync(&b, 42 * MIB, managed, stream), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_IS(cuMemAllocFromPoolAsync(&b, 40 * MIB, managed, stream), CUDA_SUCCESS);
		CHECK_IS(cuMemFreeAsync(b, stream), CUDA_SUCCESS);
		CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
		CHECK_IS(used(), 0);
		CHECK_IS(cuMemPoolDestroy(managed), CUDA_SUCCESS);
	}
	CHECK_IS(step.ledger->refusals[0], 3);
}

static const char *data_path(void)
{
	static char path[300];

	snprintf(path, sizeof(path), "%s/pool-pointer", getenv("VGPU_TEST_ROOT"));
	return path;
}

/* The other process imports the pool behind descriptor 77, and a pointer of it. */
static int import(void)
{
	size_t free_bytes, total_bytes;
	CUmemPoolPtrExportData data;
	CUmemoryPool pool;
	CUdeviceptr a, own;
	FILE *file;

	cuda_begin(0);
	file = fopen(data_path(), "r");
	CHECK(file != NULL && fread(&data, sizeof(data), 1, file) == 1);
	fclose(file);
	CHECK_IS(cuMemPoolImportFromShareableHandle(&pool, (void *)77,
						    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	CHECK(cuMemAllocFromPoolAsync(&own, MIB, pool, NULL) != CUDA_SUCCESS);
	CHECK(cuDeviceSetMemPool(0, pool) != CUDA_SUCCESS);
	for (int i = 0; i < 4; i++) {
		CHECK_IS(cuMemPoolImportPointer(&a, pool, &data), CUDA_SUCCESS);
		CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
		CHECK_IS(free_bytes, 64 * MIB);
		CHECK_IS(i % 2 ? cuMemFree_v2(a) : cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
		CHECK_IS(cuMemPoolTrimTo(pool, 0), CUDA_SUCCESS);
		/* The address may be the next allocation's, which is charged and freed as ever. */
		CHECK_IS(cuMemAlloc_v2(&own, 60 * MIB), CUDA_SUCCESS);
		CHECK_IS(cuMemFree_v2(own), CUDA_SUCCESS);
	}
	CHECK_IS(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 64 * MIB);
	CHECK_IS(cuMemAllocAsync(&own, 96 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocAsync(&own, 64 * MIB, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(own, NULL), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	return failures;
}

static void an_imported_pool_is_charged_to_its_owner_only(void)
{
	CUmemPoolPtrExportData data;
	CUmemoryPool own;
	CUdeviceptr a;
	FILE *file;
	int fd;

	begin(128);
	own = own_pool(CU_MEM_ALLOCATION_TYPE_PINNED, CU_MEM_LOCATION_TYPE_DEVICE, 0);
	CHECK_IS(cuMemAllocFromPoolAsync(&a, 60 * MIB, own, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemPoolExportToShareableHandle(&fd, own, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	CHECK_IS(dup2(fd, 77), 77);
	CHECK_IS(cuMemPoolExportPointer(&data, a), CUDA_SUCCESS);
	file = fopen(data_path(), "w");
	CHECK(file != NULL && fwrite(&data, sizeof(data), 1, file) == 1);
	fclose(file);
	CHECK_IS(run_self("import"), 0);
	CHECK_IS(used(), 64 * MIB);
	CHECK_IS(cuMemFreeAsync(a, stream), CUDA_SUCCESS);
	CHECK_IS(cuMemPoolDestroy(own), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "import") == 0)
		return import();
	gpus(0);
	CASE(the_pool_that_is_set_for_a_place_is_the_one_charged);
	CASE(the_drivers_pool_of_the_host_is_free);
	CASE(the_hosts_pool_that_is_set_is_free);
	CASE(managed_pools_are_charged_by_the_block);
	CASE(an_imported_pool_is_charged_to_its_owner_only);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * However memory goes, the account returns to what lives: on the device that it was on. */
#include "harness.h"

#include <pthread.h>

CUresult cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device);
CUresult cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location);
CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream);
CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
CUresult cuMemFreeHost(void *pointer);

static struct step step;

static uint64_t used(int device)
{
	return step.ledger->used_bytes[device];
}

/* A slice of each of the two GPUs. */
static void begin(void)
{
	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, 100, 100);
	step.limits->device_count = 2;
	strcpy(step.limits->device[1].uuid, UUID1);
	step.limits->device[1].step_mem_bytes = step.limits->device[1].job_mem_bytes = 50 * MIB;
	cuda_begin(0);
}

static void a_free_goes_to_the_device_of_the_block(void)
{
	CUdeviceptr a, b;
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 30 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuArrayCreate_v2(&array, &flat), CUDA_SUCCESS);
	CHECK_IS(used(0), 34 * MIB);
	cuda_begin(1);
	CHECK_IS(cuMemAlloc_v2(&b, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(1), 10 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuArrayDestroy(array), CUDA_SUCCESS);
	CHECK_IS(used(0), 0);
	CHECK_IS(used(1), 10 * MIB);
	cuda_begin(0);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(used(1), 0);
}

static void *free_without_context(void *pointer)
{
	/* Whatever the driver says to a thread without a context: the account goes by that. */
	CUresult result = cuMemFree_v2((CUdeviceptr)(uintptr_t)pointer);

	return (void *)(uintptr_t)(result == CUDA_SUCCESS);
}

static void a_free_that_the_driver_refuses_changes_nothing(void)
{
	pthread_t thread;
	CUdeviceptr a;
	void *freed;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 30 * MIB), CUDA_SUCCESS);
	CHECK(cuMemFree_v2(a + 512) != CUDA_SUCCESS);
	CHECK(cuMemFree_v2(0xdeadbeef000) != CUDA_SUCCESS);
	CHECK_IS(used(0), 30 * MIB);
	CHECK_IS(pthread_create(&thread, NULL, free_without_context, (void *)(uintptr_t)a), 0);
	CHECK_IS(pthread_join(thread, &freed), 0);
	CHECK_IS(used(0), freed != NULL ? 0 : 30 * MIB);
	if (freed == NULL)
		CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK(cuMemFree_v2(a) != CUDA_SUCCESS);
	CHECK(cuMemFreeAsync(a, NULL) != CUDA_SUCCESS);
	CHECK_IS(used(0), 0);
}

static void a_reset_leaves_what_other_contexts_hold(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	CUcontext own;
	CUdeviceptr a, b, c;

	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 30 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocManaged(&c, 4 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuMemCreate(&handle, 20 * MIB, &prop, 0), CUDA_SUCCESS);
	CHECK_IS(cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(0), 64 * MIB);
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_IS(used(0), 30 * MIB);
	CHECK_IS(driver_used_bytes(0), 30 * MIB);
	CHECK(cuMemFree_v2(a) != CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(used(0), 20 * MIB);
	CHECK_IS(cuMemRelease(handle), CUDA_SUCCESS);
	CHECK_IS(used(0), 0);
	CHECK_IS(driver_used_bytes(0), 0);
}

static void advice_and_prefetching_change_no_account(void)
{
	CUdeviceptr managed, a;

	begin();
	CHECK_IS(cuMemAllocManaged(&managed, 64 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(used(0), 64 * MIB);
	for (int advice = 1; advice <= 6; advice++) {
		CHECK_IS(cuMemAdvise(managed, 64 * MIB, advice, 0), CUDA_SUCCESS);
		CHECK_IS(
			cuMemAdvise_v2(managed, MIB, advice, (CUmemLocation){CU_MEM_LOCATION_TYPE_DEVICE, 0}),
			CUDA_SUCCESS);
	}
	CHECK_IS(used(0), 64 * MIB);
	CHECK_IS(cuMemPrefetchAsync(managed, 64 * MIB, 0, NULL), CUDA_SUCCESS);
	CHECK_IS(used(0), 64 * MIB);
	CHECK_IS(driver_held_bytes(0), 64 * MIB);
	CHECK_IS(cuMemPrefetchAsync(managed, 64 * MIB, -1, NULL), CUDA_SUCCESS);
	CHECK_IS(used(0), 64 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 50 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocManaged(&a, 50 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemFree_v2(managed), CUDA_SUCCESS);
	CHECK_IS(used(0), 0);
}

static void memory_of_the_host_costs_nothing(void)
{
	void *host;

	begin();
	CHECK_IS(cuMemHostAlloc(&host, 200 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(used(0), 0);
	CHECK_IS(step.ledger->refusals[0], 0);
	CHECK_IS(cuMemFreeHost(host), CUDA_SUCCESS);
}

int main(void)
{
	gpus(0);
	CASE(a_free_goes_to_the_device_of_the_block);
	CASE(a_free_that_the_driver_refuses_changes_nothing);
	CASE(a_reset_leaves_what_other_contexts_hold);
	CASE(advice_and_prefetching_change_no_account);
	CASE(memory_of_the_host_costs_nothing);
	return summary();
}

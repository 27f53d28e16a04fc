/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What each kind of allocation is charged, and what the program is told. */
#include "harness.h"

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream);
CUresult cuMemsetD8_v2(CUdeviceptr pointer, unsigned char value, size_t count);

static struct step step;

static uint64_t used(void)
{
	CHECK_IS(step_slots_bytes(&step), step.ledger->used_bytes[0]);
	CHECK_IS(step.ledger->step[0].used_bytes[0], step.ledger->used_bytes[0]);
	return step.ledger->used_bytes[0];
}

static void begin(uint64_t step_mib)
{
	static uint32_t job = 100;

	gpus(0);
	step = step_make(job + (uint32_t)getpid(), 0, step_mib, step_mib);
	cuda_begin(0);
}

static void linear_memory_is_charged_and_given_back(void)
{
	CUdeviceptr a, b;

	begin(100);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMemAlloc_v2(&b, 40 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMemAlloc_v2(&b, 40 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(used(), 40 * MIB);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(step.ledger->peak_bytes[0], 100 * MIB);
	CHECK_IS(step.ledger->step[0].peak_bytes[0], 100 * MIB);
	CHECK_IS(step.ledger->refusals[0], 1);
	CHECK_IS(step.ledger->step[0].refusals[0], 1);
}

static void whole_granules_are_charged_as_the_driver_takes_them(void)
{
	CUdeviceptr a[20], small;

	begin(1000);
	for (int i = 0; i < 20; i++)
		CHECK_IS(cuMemAlloc_v2(&a[i], MIB + 1), CUDA_SUCCESS);
	CHECK_IS(used(), 40 * MIB);
	CHECK_IS(driver_used_bytes(0), 40 * MIB);
	CHECK_IS(cuMemAlloc_v2(&small, 1), CUDA_SUCCESS);
	CHECK_IS(used(), 42 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	for (int i = 0; i < 20; i++)
		CHECK_IS(cuMemFree_v2(a[i]), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(small), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void functions_with_32_bits_are_charged(void)
{
	CUdeviceptr_v1 a, b;
	unsigned int pitch, free_bytes, total_bytes;

	begin(100);
	CHECK_IS(cuMemAlloc(&a, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMemAlloc(&b, 60 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 40 * MIB);
	CHECK_IS(total_bytes, 100 * MIB);
	CHECK_IS(cuDeviceTotalMem(&total_bytes, 0), CUDA_SUCCESS);
	CHECK_IS(total_bytes, 100 * MIB);
	CHECK_IS(cuMemFree(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuMemAllocPitch(&b, &pitch, 1000, 1024, 4), CUDA_SUCCESS);
	CHECK_IS(pitch, 1024);
	CHECK_IS(used(), 2 * MIB);
	CHECK_IS(cuMemFree(b), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	step.limits->device[0].step_mem_bytes = step.limits->device[0].job_mem_bytes = 1ull << 40;
	CHECK_IS(cuMemGetInfo(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(total_bytes, UINT32_MAX);
}

static void pitched_memory_costs_pitch_times_height(void)
{
	CUdeviceptr a;
	size_t pitch;

	begin(100);
	CHECK_IS(cuMemAllocPitch_v2(&a, &pitch, 1000, 2048, 4), CUDA_SUCCESS);
	CHECK(pitch >= 1000);
	CHECK_IS(used(), pitch * 2048);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuMemAllocPitch_v2(&a, &pitch, SIZE_MAX / 2, 1024, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocPitch_v2(&a, &pitch, SIZE_MAX, 1, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 0);
}

static void managed_memory_is_charged(void)
{
	CUdeviceptr a, b;

	begin(100);
	/* To 64 KiB. */
	CHECK_IS(cuMemAllocManaged(&a, 100 * MIB + 1, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocManaged(&a, 100 * MIB - (64 << 10) + 1, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(cuMemPrefetchAsync(a, 100 * MIB, 0, NULL), CUDA_SUCCESS);
	CHECK_IS(driver_held_bytes(0), used());
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuMemAllocManaged(&a, 3 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocManaged(&b, MIB + 1, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(used(), 5 * MIB);
	CHECK_IS(cuMemsetD8_v2(a, 0, 3 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemsetD8_v2(b, 0, MIB + 1), CUDA_SUCCESS);
	CHECK_IS(driver_held_bytes(0), used());
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuMemAllocManaged(&a, SIZE_MAX, CU_MEM_ATTACH_GLOBAL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 0);
}

/* The driver keeps memory for managed memory in pieces of 128 MiB: the device's, not the slice's. */
static void what_the_driver_keeps_for_managed_memory_is_not_charged(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr a, b;

	begin(100);
	CHECK_IS(cuMemAllocManaged(&a, 24 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuMemPrefetchAsync(a, 24 * MIB, 0, NULL), CUDA_SUCCESS);
	CHECK_IS(driver_used_bytes(0), 128 * MIB);
	CHECK_IS(used(), 24 * MIB);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 76 * MIB);
	CHECK_IS(cuMemAllocManaged(&b, 76 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuMemPrefetchAsync(b, 76 * MIB, 0, NULL), CUDA_SUCCESS);
	CHECK_IS(driver_used_bytes(0), 128 * MIB);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(driver_used_bytes(0), 0);
	CHECK_IS(used(), 0);
}

static CUmemAllocationProp on_device(int ordinal)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal}};
}

static void failed_driver_calls_leave_nothing_charged(void)
{
	CUdeviceptr a;
	CUmemGenericAllocationHandle handle;
	CUmemAllocationProp prop = on_device(0);
	size_t pitch;

	begin(8192); /* more than the GPU has */
	CHECK_IS(cuMemAlloc_v2(&a, 5000 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocPitch_v2(&a, &pitch, 5000 * MIB, 1, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocAsync(&a, 5000 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemCreate(&handle, 5000 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(cuMemAlloc_v2(&a, 0) != CUDA_SUCCESS);
	CHECK(cuMemAlloc_v2(NULL, MIB) != CUDA_SUCCESS);
	CHECK(cuMemCreate(&handle, MIB * 2, NULL, 0) != CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(step.ledger->refusals[0], 0);
}

static void unknown_pointers_pass_through(void)
{
	begin(100);
	CHECK(cuMemFree_v2(0x1234567) != CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(0), CUDA_SUCCESS);
	CHECK(cuMemFreeAsync(0x1234567, NULL) != CUDA_SUCCESS);
	CHECK(cuMemUnmap(0x200000, 2 * MIB) != CUDA_SUCCESS);
	CHECK(cuMemRelease(77) != CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void freeing_twice_gives_back_once(void)
{
	CUdeviceptr a, b;

	begin(100);
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK(cuMemFree_v2(a) != CUDA_SUCCESS);
	CHECK_IS(used(), 10 * MIB);
}

static void memory_info_tells_the_slice(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr a;

	begin(100);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 100 * MIB);
	CHECK_IS(total_bytes, 100 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 30 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 70 * MIB);
	CHECK_IS(cuDeviceTotalMem_v2(&total_bytes, 0), CUDA_SUCCESS);
	CHECK_IS(total_bytes, 100 * MIB);
	/* A smaller limit is seen at once, and what is over it is no negative number. */
	step.limits->device[0].step_mem_bytes = 20 * MIB;
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 0);
	CHECK_IS(total_bytes, 20 * MIB);
	/* Never more than the device has. */
	step.limits->device[0].step_mem_bytes = step.limits->device[0].job_mem_bytes = 1ull << 50;
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK(total_bytes <= 4096 * MIB && free_bytes <= 4066 * MIB);
}

static void null_outputs_are_the_drivers_business(void)
{
	size_t bytes = 1;

	begin(100);
	/* Whatever the driver says to these: no crash, and what is written is the slice. */
	if (cuMemGetInfo_v2(NULL, &bytes) == CUDA_SUCCESS)
		CHECK_IS(bytes, 100 * MIB);
	if (cuMemGetInfo_v2(&bytes, NULL) == CUDA_SUCCESS)
		CHECK_IS(bytes, 100 * MIB);
	cuMemGetInfo_v2(NULL, NULL);
	CHECK(cuDeviceTotalMem_v2(NULL, 0) != CUDA_SUCCESS);
	CHECK(cuDevicePrimaryCtxRetain(NULL, 0) != CUDA_SUCCESS);
	CHECK_IS(nvmlInit_v2(), NVML_SUCCESS);
	CHECK(nvmlDeviceGetMemoryInfo(NULL, NULL) != NVML_SUCCESS);
	CHECK(nvmlDeviceGetComputeRunningProcesses_v3(NULL, NULL, NULL) != NVML_SUCCESS);
}

static void without_a_context_the_driver_answers(void)
{
	CUdeviceptr a;
	size_t free_bytes, total_bytes;

	gpus(0);
	step = step_make(7, 0, 100, 100);
	CHECK_IS(cuMemAlloc_v2(&a, MIB), CUDA_ERROR_NOT_INITIALIZED);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, MIB), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_IS(used(), 0);
}

static void a_device_that_was_not_granted_has_no_memory(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr a;
	CUmemAllocationProp prop = on_device(1);
	CUmemGenericAllocationHandle handle;

	gpus(0);
	step = step_make(8, 0, 100, 100);
	cuda_begin_not_granted(&step);
	CHECK_IS(cuMemAlloc_v2(&a, 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemCreate(&handle, 2 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 0);
	CHECK_IS(total_bytes, 0);
	CHECK_IS(cuDeviceTotalMem_v2(&total_bytes, 1), CUDA_SUCCESS);
	CHECK_IS(total_bytes, 0);
	CHECK_IS(used(), 0);
}

static void a_stream_of_another_device_is_charged_there(void)
{
	CUstream there, unused;
	CUmemoryPool pool_there;
	CUcontext first;
	CUdeviceptr a;

	gpus(0);
	step = step_make(9, 0, 100, 100);
	step.limits->device_count = 2;
	strcpy(step.limits->device[1].uuid, UUID1);
	step.limits->device[1].step_mem_bytes = step.limits->device[1].job_mem_bytes = 50 * MIB;
	cuda_begin(1);
	CHECK_IS(cuStreamCreate(&there, 0), CUDA_SUCCESS);
	CHECK_IS(cuDeviceGetDefaultMemPool(&pool_there, 1), CUDA_SUCCESS);
	cuda_begin(0);
	CHECK_IS(cuCtxGetCurrent(&first), CUDA_SUCCESS);
	CHECK_IS(cuStreamCreate(&unused, 0), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		CHECK_IS(cuCtxSetCurrent(i == 2 ? NULL : first), CUDA_SUCCESS);
		if (i == 1)
			CHECK_IS(cuMemAllocFromPoolAsync(&a, 10 * MIB, pool_there, unused), CUDA_SUCCESS);
		else if (cuMemAllocAsync(&a, 10 * MIB, there) != CUDA_SUCCESS)
			continue; /* without a current context the driver may refuse */
		CHECK_IS(step.ledger->used_bytes[0], 0);
		CHECK_IS(step.ledger->used_bytes[1], 32 * MIB);
		CHECK_IS(cuMemAllocAsync(&a, 40 * MIB, there), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_IS(cuMemFreeAsync(a, there), CUDA_SUCCESS);
		CHECK_IS(cuMemPoolTrimTo(pool_there, 0), CUDA_SUCCESS);
		CHECK_IS(step.ledger->used_bytes[1], 0);
	}
}

static void step_limit_is_inside_the_job_limit(void)
{
	size_t free_bytes, total_bytes;
	struct step other;
	CUdeviceptr a, b;

	gpus(0);
	other = step_make(10, 1, 80, 100);
	step = step_make(10, 0, 80, 100);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 81 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, 70 * MIB), CUDA_SUCCESS);
	step_enter(&other);
	CHECK_IS(run_self("other-step"), 0);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 10 * MIB);
	CHECK_IS(total_bytes, 80 * MIB);
	CHECK_IS(cuMemAlloc_v2(&b, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->peak_bytes[0], 100 * MIB);
	CHECK_IS(step.ledger->used_bytes[0], 80 * MIB);
}

/* The other step of step_limit_is_inside_the_job_limit, while 70 of the job's 100 MiB are taken. */
static int other_step(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr a;

	cuda_begin(0);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 30 * MIB);
	CHECK_IS(total_bytes, 80 * MIB);
	gpus(0);
	stderr_catch();
	CHECK_IS(cuMemAlloc_v2(&a, 32 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(strstr(stderr_caught(), "32 MiB asked for, 70 of 100 MiB in use by this job (job 10.1)") !=
	      NULL);
	CHECK_IS(cuMemAlloc_v2(&a, 30 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	return failures;
}

static void the_first_refusal_says_one_line(void)
{
	const char *said;
	CUdeviceptr a;

	gpus(0);
	step = step_make(123, 0, 3000, 3000);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 2432 * MIB), CUDA_SUCCESS);
	stderr_catch();
	for (int i = 0; i < 3; i++)
		CHECK_IS(cuMemAlloc_v2(&a, 1024 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	said = stderr_caught();
	CHECK(strcmp(said, "vgpu: GPU memory limit reached: 1024 MiB asked for, 2432 of 3000 MiB in use by "
			   "this step "
			   "(job 123.0)\n") == 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "other-step") == 0)
		return other_step();
	gpus(0);
	CASE(linear_memory_is_charged_and_given_back);
	CASE(whole_granules_are_charged_as_the_driver_takes_them);
	CASE(functions_with_32_bits_are_charged);
	CASE(pitched_memory_costs_pitch_times_height);
	CASE(managed_memory_is_charged);
	CASE(what_the_driver_keeps_for_managed_memory_is_not_charged);
	CASE(failed_driver_calls_leave_nothing_charged);
	CASE(unknown_pointers_pass_through);
	CASE(freeing_twice_gives_back_once);
	CASE(memory_info_tells_the_slice);
	CASE(null_outputs_are_the_drivers_business);
	CASE(without_a_context_the_driver_answers);
	CASE(a_device_that_was_not_granted_has_no_memory);
	CASE(a_stream_of_another_device_is_charged_there);
	CASE(step_limit_is_inside_the_job_limit);
	CASE(the_first_refusal_says_one_line);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory by handle: charged until the last reference and the last mapping are gone. */
#include "harness.h"

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

static CUmemAllocationProp on_device(int ordinal)
{
	return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal}};
}

static void vmm_charge_lives_until_the_last_holder_goes(void)
{
	CUmemAllocationProp prop = on_device(0);
	CUmemGenericAllocationHandle a, again;
	CUdeviceptr address;

	begin(100);
	CHECK_IS(cuMemAddressReserve(&address, 64 * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemCreate(&a, 102 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemCreate(&a, 32 * MIB, &prop, 0), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuMemMap(address, 32 * MIB, 0, a, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB); /* mapped still */
	CHECK_IS(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(address + MIB)), CUDA_SUCCESS);
	CHECK_IS(cuMemUnmap(address, 32 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB); /* retained still */
	CHECK_IS(cuMemRelease(again), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuMemRelease(again) == CUDA_SUCCESS, false);
	CHECK_IS(used(), 0);
}

static void vmm_unmaps_several_mappings_at_once(void)
{
	CUmemAllocationProp prop = on_device(0);
	CUmemGenericAllocationHandle handle[100];
	CUdeviceptr address;

	begin(1000);
	CHECK_IS(cuMemAddressReserve(&address, 200 * MIB, 0, 0, 0), CUDA_SUCCESS);
	for (int i = 0; i < 100; i++) {
		CHECK_IS(cuMemCreate(&handle[i], 2 * MIB, &prop, 0), CUDA_SUCCESS);
		CHECK_IS(cuMemMap(address + (CUdeviceptr)i * 2 * MIB, 2 * MIB, 0, handle[i], 0),
			 CUDA_SUCCESS);
		CHECK_IS(cuMemRelease(handle[i]), CUDA_SUCCESS);
	}
	CHECK_IS(used(), 200 * MIB);
	CHECK(cuMemUnmap(address + MIB, 2 * MIB) != CUDA_SUCCESS);
	CHECK_IS(used(), 200 * MIB);
	CHECK_IS(cuMemUnmap(address, 200 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void vmm_on_the_host_is_free(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0}};
	CUmemGenericAllocationHandle a;

	begin(100);
	if (cuMemCreate(&a, 200 * MIB, &prop, 0) == CUDA_SUCCESS)
		CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(step.ledger->refusals[0], 0);
}

int main(void)
{
	gpus(0);
	CASE(vmm_charge_lives_until_the_last_holder_goes);
	CASE(vmm_unmaps_several_mappings_at_once);
	CASE(vmm_on_the_host_is_free);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is bound to multicast objects and logical endpoints stays charged as long as it is. */
#include "harness.h"

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle object, CUdevice device);

static struct step step;

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					      .requestedHandleTypes =
						      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

/* The account, which is what the driver holds. */
static uint64_t used(void)
{
	CHECK_IS(step_slots_bytes(&step), step.ledger->used_bytes[0]);
	CHECK_IS(driver_used_bytes(0), step.ledger->used_bytes[0]);
	return step.ledger->used_bytes[0];
}

static void begin(void)
{
	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, 100, 100);
	cuda_begin(0);
}

static CUmemGenericAllocationHandle object_of(size_t mib)
{
	CUmulticastObjectProp prop = {
		.numDevices = 1, .size = mib * MIB, .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	CUmemGenericAllocationHandle object = 0;

	CHECK_IS(cuMulticastCreate(&object, &prop), CUDA_SUCCESS);
	CHECK_IS(cuMulticastAddDevice(object, 0), CUDA_SUCCESS);
	return object;
}

static CUmemGenericAllocationHandle memory_of(size_t mib)
{
	CUmemGenericAllocationHandle handle = 0;

	CHECK_IS(cuMemCreate(&handle, mib * MIB, &on_device, 0), CUDA_SUCCESS);
	return handle;
}

static CUdeviceptr mapped(CUmemGenericAllocationHandle handle, size_t mib)
{
	CUdeviceptr address = 0;

	CHECK_IS(cuMemAddressReserve(&address, mib * MIB, 0, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemMap(address, mib * MIB, 0, handle, 0), CUDA_SUCCESS);
	return address;
}

static void an_object_costs_nothing_and_binding_nothing_more(void)
{
	CUmemGenericAllocationHandle object, memory;
	CUdeviceptr address;

	begin();
	object = object_of(400);
	memory = memory_of(60);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMulticastBindMem(object, 0, memory, 0, 60 * MIB, 0), CUDA_SUCCESS);
	address = mapped(object, 400);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMulticastUnbind(object, 0, 0, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(memory), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuMemUnmap(address, 400 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(object), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void what_is_bound_is_charged_until_it_is_unbound(void)
{
	CUmemGenericAllocationHandle object, a, b, c, d;
	CUdeviceptr at_b, at_d;

	begin();
	object = object_of(400);
	a = memory_of(10), b = memory_of(20), c = memory_of(30), d = memory_of(40);
	at_b = mapped(b, 20), at_d = mapped(d, 40);
	CHECK_IS(cuMulticastBindMem(object, 0, a, 0, 10 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuMulticastBindAddr(object, 100 * MIB, at_b, 20 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuMulticastBindMem_v2(object, 0, 200 * MIB, c, 0, 30 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuMulticastBindAddr_v2(object, 0, 300 * MIB, at_d, 40 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemUnmap(at_b, 20 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemUnmap(at_d, 40 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(b), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(c), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(d), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(cuMemCreate(&a, 2 * MIB, &on_device, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMulticastUnbind(object, 0, 0, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 90 * MIB);
	CHECK_IS(cuMulticastUnbind(object, 0, 100 * MIB, 20 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 70 * MIB);
	CHECK_IS(cuMulticastUnbind(object, 0, 200 * MIB, 30 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 40 * MIB);
	CHECK_IS(cuMulticastUnbind(object, 0, 300 * MIB, 40 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void the_end_of_an_object_unbinds_all(void)
{
	CUmemGenericAllocationHandle object, memory;
	CUdeviceptr address;

	begin();
	object = object_of(60);
	memory = memory_of(60);
	CHECK_IS(cuMulticastBindMem(object, 0, memory, 0, 60 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(memory), CUDA_SUCCESS);
	address = mapped(object, 60);
	CHECK_IS(cuMemRelease(object), CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	CHECK_IS(cuMemUnmap(address, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void what_cannot_be_bound_is_not_held(void)
{
	CUmemGenericAllocationHandle object, memory;

	begin();
	object = object_of(60);
	memory = memory_of(60);
	CHECK(cuMulticastBindMem(object, 0, memory, 0, 1, 0) != CUDA_SUCCESS);
	CHECK(cuMulticastBindAddr(object, 0, 0x123, 2 * MIB, 0) != CUDA_SUCCESS);
	CHECK(cuMulticastUnbind(object, 0, 0, 60 * MIB) != CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(memory), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* The other process imports the object behind descriptor 77 and binds memory of its own. */
static int bind_own(void)
{
	CUmemGenericAllocationHandle object, memory;
	size_t free_bytes, total_bytes;

	cuda_begin(0);
	CHECK_IS(
		cuMemImportFromShareableHandle(&object, (void *)77, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
		CUDA_SUCCESS);
	memory = memory_of(40);
	CHECK_IS(cuMulticastBindMem(object, 0, memory, 0, 40 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(memory), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 0);
	CHECK_IS(cuMemRelease(object), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 40 * MIB);
	return failures;
}

static void an_imported_object_holds_what_its_importer_binds(void)
{
	CUmemGenericAllocationHandle object, memory;
	int fd;

	begin();
	object = object_of(60);
	memory = memory_of(60);
	CHECK_IS(cuMulticastBindMem(object, 0, memory, 0, 60 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemExportToShareableHandle(&fd, object, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
		 CUDA_SUCCESS);
	CHECK_IS(dup2(fd, 77), 77);
	CHECK_IS(run_self("bind"), 0);
	CHECK_IS(used(), 60 * MIB);
}

static void endpoints_hold_what_is_bound_to_them(void)
{
	CUmemGenericAllocationHandle a, b, c;
	CUdeviceptr at_b;

	begin();
	a = memory_of(10), b = memory_of(20), c = memory_of(30);
	at_b = mapped(b, 20);
	CHECK_IS(cuLogicalEndpointBindMem(7, 0, 0, a, 0, 10 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuLogicalEndpointBindAddr(7, 0, 10 * MIB, (void *)(uintptr_t)at_b, 20 * MIB, 0),
		 CUDA_SUCCESS);
	CHECK_IS(cuLogicalEndpointBindMem(8, 0, 0, c, 0, 30 * MIB, 0), CUDA_SUCCESS);
	CHECK_IS(cuMemUnmap(at_b, 20 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(a), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(b), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(c), CUDA_SUCCESS);
	CHECK_IS(used(), 60 * MIB);
	/* Several at once. */
	CHECK_IS(cuLogicalEndpointUnbind(7, 0, 0, 30 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 30 * MIB);
	CHECK_IS(cuLogicalEndpointDestroy(7), CUDA_SUCCESS);
	CHECK_IS(used(), 30 * MIB);
	CHECK_IS(cuLogicalEndpointDestroy(8), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "bind") == 0)
		return bind_own();
	gpus(0);
	CASE(an_object_costs_nothing_and_binding_nothing_more);
	CASE(what_is_bound_is_charged_until_it_is_unbound);
	CASE(the_end_of_an_object_unbinds_all);
	CASE(what_cannot_be_bound_is_not_held);
	CASE(an_imported_object_holds_what_its_importer_binds);
	CASE(endpoints_hold_what_is_bound_to_them);
	return summary();
}

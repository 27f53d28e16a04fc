/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Physical memory by handle, mapped or not, on the device or on the host. */
#include "parts.h"

static CUmemGenericAllocationHandle handle;
static CUdeviceptr address;
static uint64_t held_bytes;

static int start(void)
{
	NEEDS(cuMemCreate);
	return 0;
}

static int take_handle(uint64_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = the_device },
	};

	held_bytes = bytes;
	return (int)cu.cuMemCreate(&handle, bytes, &prop, 0);
}

static void give_handle(void)
{
	cu.cuMemRelease(handle);
}

static int take_mapped(uint64_t bytes)
{
	const CUmemAccessDesc access = {
		.location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = the_device },
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	int error = take_handle(bytes);

	if (error != 0)
		return error;
	error = (int)cu.cuMemAddressReserve(&address, bytes, 0, 0, 0);
	if (error == 0) {
		error = (int)cu.cuMemMap(address, bytes, 0, handle, 0);
		if (error == 0 && (error = (int)cu.cuMemSetAccess(address, bytes, &access, 1)) != 0)
			cu.cuMemUnmap(address, bytes);
		if (error != 0)
			cu.cuMemAddressFree(address, bytes);
	}
	if (error != 0)
		cu.cuMemRelease(handle);
	return error;
}

static int touch(void)
{
	return touch_bytes(address, held_bytes);
}

static void unmap(void)
{
	cu.cuMemUnmap(address, held_bytes);
	cu.cuMemAddressFree(address, held_bytes);
}

static void give_mapped(void)
{
	unmap();
	cu.cuMemRelease(handle);
}

/* From here on only the mapping keeps the memory. */
static int take_released(uint64_t bytes)
{
	int error = take_mapped(bytes);

	return error != 0 ? error : (int)cu.cuMemRelease(handle);
}

static int take_host(uint64_t bytes)
{
	const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = { .type = (CUmemLocationType)3 /* HOST_NUMA, since 12.2 */, .id = 0 },
	};
	int error = (int)cu.cuMemCreate(&handle, bytes, &prop, 0);

	return error == CUDA_ERROR_INVALID_VALUE || error == CUDA_ERROR_INVALID_DEVICE ||
			       error == CUDA_ERROR_NOT_SUPPORTED
		       ? PATH_ABSENT
		       : error;
}

struct path vmm_paths[] = {
	{ .name = "cuMemCreate", .granule = GRANULE, .start = start, .take = take_handle, .give = give_handle },
	{ .name = "cuMemCreate + cuMemMap", .granule = GRANULE, .start = start, .take = take_mapped, .give = give_mapped, .touch = touch },
	{ .name = "cuMemMap, handle released", .granule = GRANULE, .start = start, .take = take_released, .give = unmap, .touch = touch },
	{ .name = "cuMemCreate on the host", .granule = GRANULE, .flags = PATH_HOST, .start = start, .take = take_host, .give = give_handle },
	{ .name = NULL },
};

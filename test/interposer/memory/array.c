/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Arrays: charged what the driver takes for them, and sparse ones what is mapped to them. */
#include "harness.h"

static struct step step;

static uint64_t used(void)
{
	return step_used_bytes(&step);
}

static void begin(uint64_t step_mib)
{
	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, step_mib, step_mib);
	cuda_begin(0);
}

static const CUDA_ARRAY_DESCRIPTOR flat = {
	.Width = 1024, .Height = 1024, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
static const CUDA_ARRAY3D_DESCRIPTOR deep = {
	.Width = 256, .Height = 256, .Depth = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};

static CUDA_ARRAY3D_DESCRIPTOR with(unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR shape = deep;

	shape.Flags = flags;
	return shape;
}

static void an_array_costs_what_the_driver_takes(void)
{
	CUarray a, b, c;

	begin(50);
	CHECK_IS(cuArrayCreate_v2(&a, &flat), CUDA_SUCCESS);
	CHECK_IS(used(), 16 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuArray3DCreate_v2(&b, &deep), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuArrayCreate_v2(&c, &flat), CUDA_SUCCESS);
	CHECK_IS(cuArray3DCreate_v2(&c, &deep), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(step.ledger->refusals[0], 1);
	CHECK_IS(used(), 48 * MIB);
	CHECK_IS(cuArrayDestroy(a), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK(cuArrayDestroy(a) != CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuArrayDestroy(b), CUDA_SUCCESS);
	CHECK_IS(used(), 16 * MIB);
}

static void arrays_with_32_bits_are_charged(void)
{
	CUDA_ARRAY_DESCRIPTOR_v1 flat_v1 = {1024, 1024, CU_AD_FORMAT_FLOAT, 4};
	CUDA_ARRAY3D_DESCRIPTOR_v1 deep_v1 = {256, 256, 64, CU_AD_FORMAT_FLOAT, 1, 0};
	CUarray a, b, c;

	begin(40);
	CHECK_IS(cuArrayCreate(&a, &flat_v1), CUDA_SUCCESS);
	CHECK_IS(used(), 16 * MIB);
	CHECK_IS(cuArray3DCreate(&b, &deep_v1), CUDA_SUCCESS);
	CHECK_IS(used(), 32 * MIB);
	CHECK_IS(cuArrayCreate(&c, &flat_v1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuArrayDestroy(a), CUDA_SUCCESS);
	CHECK_IS(cuArrayDestroy(b), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void a_mipmapped_array_costs_all_its_levels(void)
{
	CUmipmappedArray a, b;

	begin(50);
	CHECK_IS(cuMipmappedArrayCreate(&a, &deep, 4), CUDA_SUCCESS);
	CHECK(used() > 16 * MIB && used() < 32 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuMipmappedArrayCreate(&b, &deep, 4), CUDA_SUCCESS);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuMipmappedArrayCreate(&b, &deep, 4), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMipmappedArrayDestroy(a), CUDA_SUCCESS);
	CHECK_IS(cuMipmappedArrayDestroy(b), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* The driver tells what an array takes by another one, which is made for that. */
static void arrays_that_were_made_to_ask_about_others_are_gone(void)
{
	unsigned made, gone;
	CUmipmappedArray a;
	CUarray b;

	begin(100);
	CHECK_IS(cuMipmappedArrayCreate(&a, &deep, 4), CUDA_SUCCESS);
	CHECK_IS(cuArray3DCreate_v2(&b, &deep), CUDA_SUCCESS);
	CHECK_IS(cuSimAsked("cuArray3DCreate", &made), CUDA_SUCCESS);
	CHECK_IS(cuSimAsked("cuArrayDestroy", &gone), CUDA_SUCCESS);
	CHECK_IS(made - gone, 2);
	CHECK_IS(cuMipmappedArrayDestroy(a), CUDA_SUCCESS);
	CHECK_IS(cuArrayDestroy(b), CUDA_SUCCESS);
	CHECK_IS(cuSimAsked("cuArrayDestroy", &gone), CUDA_SUCCESS);
	CHECK_IS(made, gone);
}

static void arrays_that_fail_leave_nothing_charged(void)
{
	CUDA_ARRAY3D_DESCRIPTOR strange = deep;
	CUmipmappedArray mipmap;
	CUarray a;

	begin(8192);
	strange.Format = 0x7777;
	CHECK(cuArray3DCreate_v2(&a, &strange) != CUDA_SUCCESS);
	CHECK(cuArray3DCreate_v2(&a, NULL) != CUDA_SUCCESS);
	CHECK(cuArray3DCreate_v2(NULL, &deep) != CUDA_SUCCESS);
	CHECK(cuArrayCreate_v2(&a, NULL) != CUDA_SUCCESS);
	CHECK(cuArrayCreate(NULL, NULL) != CUDA_SUCCESS);
	CHECK(cuMipmappedArrayCreate(&mipmap, NULL, 3) != CUDA_SUCCESS);
	CHECK(cuMipmappedArrayCreate(&mipmap, &deep, 0) != CUDA_SUCCESS);
	CHECK(cuArrayDestroy(NULL) != CUDA_SUCCESS);
	/* The limit is above what the GPU has: the driver itself has to say no. */
	strange = (CUDA_ARRAY3D_DESCRIPTOR){.Width = 16384, .Height = 16384, .Depth = 8,
					    .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CHECK_IS(cuArray3DCreate_v2(&a, &strange), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 0);
	/* Larger than any number. */
	strange.Width = strange.Height = strange.Depth = SIZE_MAX;
	CHECK(cuArray3DCreate_v2(&a, &strange) != CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static CUmemGenericAllocationHandle tile(uint64_t bytes)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle = 0;

	CHECK_IS(cuMemCreate(&handle, bytes, &prop, 0), CUDA_SUCCESS);
	return handle;
}

static CUarrayMapInfo part(CUarray array, unsigned int z, CUmemGenericAllocationHandle handle)
{
	CUarrayMapInfo map = {.resource.array = array,
			      .memOperationType =
				      handle != 0 ? CU_MEM_OPERATION_TYPE_MAP : CU_MEM_OPERATION_TYPE_UNMAP,
			      .deviceBitMask = 1};

	map.subresource.sparseLevel.offsetZ = z;
	map.subresource.sparseLevel.extentWidth = map.subresource.sparseLevel.extentHeight = 256;
	map.subresource.sparseLevel.extentDepth = 1;
	map.memHandle.memHandle = handle;
	return map;
}

static void a_sparse_array_costs_what_is_mapped(void)
{
	CUDA_ARRAY3D_DESCRIPTOR sparse = with(CUDA_ARRAY3D_SPARSE);
	CUmemGenericAllocationHandle handle[3];
	CUarrayMapInfo map[3];
	CUarray a;

	begin(20);
	CHECK_IS(cuArray3DCreate_v2(&a, &sparse), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	for (unsigned int i = 0; i < 3; i++) {
		handle[i] = tile(2 * MIB);
		map[i] = part(a, i, handle[i]);
	}
	CHECK_IS(used(), 6 * MIB);
	CHECK_IS(cuMemMapArrayAsync(map, 3, NULL), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++)
		CHECK_IS(cuMemRelease(handle[i]), CUDA_SUCCESS);
	CHECK_IS(used(), 6 * MIB); /* the array holds it */
	CHECK_IS(driver_used_bytes(0), 6 * MIB);
	map[0] = part(a, 0, 0);
	CHECK_IS(cuMemMapArrayAsync_ptsz(map, 1, NULL), CUDA_SUCCESS);
	CHECK_IS(used(), 4 * MIB);
	/* Other memory in the place of the old. */
	handle[0] = tile(4 * MIB);
	map[0] = part(a, 1, handle[0]);
	CHECK_IS(cuMemMapArrayAsync(map, 1, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(handle[0]), CUDA_SUCCESS);
	CHECK_IS(used(), 6 * MIB);
	CHECK_IS(driver_used_bytes(0), 6 * MIB);
	CHECK_IS(cuArrayDestroy(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(driver_used_bytes(0), 0);
}

static void a_deferred_array_costs_what_is_mapped(void)
{
	CUDA_ARRAY3D_DESCRIPTOR later = with(CUDA_ARRAY3D_DEFERRED_MAPPING);
	CUDA_ARRAY_MEMORY_REQUIREMENTS needs;
	CUmemGenericAllocationHandle handle;
	CUmipmappedArray mipmap;
	CUarrayMapInfo map;
	CUarray a;

	begin(20);
	CHECK_IS(cuArray3DCreate_v2(&a, &later), CUDA_SUCCESS);
	CHECK_IS(cuMipmappedArrayCreate(&mipmap, &later, 2), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
	CHECK_IS(cuArrayGetMemoryRequirements(&needs, a, 0), CUDA_SUCCESS);
	CHECK_IS(needs.size, 16 * MIB);
	handle = tile(needs.size);
	map = part(a, 0, handle);
	CHECK_IS(cuMemMapArrayAsync(&map, 1, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(handle), CUDA_SUCCESS);
	CHECK_IS(used(), 16 * MIB);
	CHECK(cuMemMapArrayAsync(NULL, 1, NULL) != CUDA_SUCCESS);
	CHECK_IS(cuMipmappedArrayDestroy(mipmap), CUDA_SUCCESS);
	CHECK_IS(used(), 16 * MIB);
	CHECK_IS(cuArrayDestroy(a), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void arrays_end_with_their_context(void)
{
	CUDA_ARRAY3D_DESCRIPTOR sparse = with(CUDA_ARRAY3D_SPARSE);
	CUmemGenericAllocationHandle handle;
	CUcontext context;
	CUarrayMapInfo map;
	CUarray a, b, kept;

	begin(100);
	CHECK_IS(cuArrayCreate_v2(&kept, &flat), CUDA_SUCCESS);
	CHECK_IS(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuArrayCreate_v2(&a, &flat), CUDA_SUCCESS);
	CHECK_IS(cuArray3DCreate_v2(&b, &sparse), CUDA_SUCCESS);
	handle = tile(2 * MIB);
	map = part(b, 0, handle);
	CHECK_IS(cuMemMapArrayAsync(&map, 1, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemRelease(handle), CUDA_SUCCESS);
	CHECK_IS(used(), 34 * MIB);
	CHECK_IS(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	CHECK_IS(used(), 16 * MIB);
	CHECK_IS(driver_used_bytes(0), 16 * MIB);
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

static void an_array_on_a_device_that_was_not_granted_is_refused(void)
{
	CUarray a;

	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, 100, 100);
	cuda_begin_not_granted(&step);
	CHECK_IS(cuArrayCreate_v2(&a, &flat), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(driver_used_bytes(1), 0);
}

int main(void)
{
	gpus(0);
	CASE(an_array_costs_what_the_driver_takes);
	CASE(arrays_with_32_bits_are_charged);
	CASE(a_mipmapped_array_costs_all_its_levels);
	CASE(arrays_that_were_made_to_ask_about_others_are_gone);
	CASE(arrays_that_fail_leave_nothing_charged);
	CASE(a_sparse_array_costs_what_is_mapped);
	CASE(a_deferred_array_costs_what_is_mapped);
	CASE(arrays_end_with_their_context);
	CASE(an_array_on_a_device_that_was_not_granted_is_refused);
	return summary();
}

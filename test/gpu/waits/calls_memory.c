/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"

#include <stdlib.h>

/* A block in its own granules, so that the driver has to take and give them. */
static CUresult make_block(struct things *t)
{
	return cu.cuMemAlloc_v2(&t->block, BLOCK_BYTES);
}

static CUresult free_block(struct things *t)
{
	return cu.cuMemFree_v2(t->block);
}

static CUresult make_managed(struct things *t)
{
	return cu.cuMemAllocManaged(&t->block, BLOCK_BYTES, CU_MEM_ATTACH_GLOBAL);
}

static CUresult make_host(struct things *t)
{
	return cu.cuMemHostAlloc(&t->host, BLOCK_BYTES, 0);
}

static CUresult free_host(struct things *t)
{
	return cu.cuMemFreeHost(t->host);
}

static CUresult own_host(struct things *t)
{
	t->host = aligned_alloc(4096, BLOCK_BYTES);
	return t->host != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult leave_host(struct things *t)
{
	free(t->host);
	return CUDA_SUCCESS;
}

static CUresult tell_of_host(struct things *t)
{
	return cu.cuMemHostRegister_v2(t->host, BLOCK_BYTES, 0);
}

static CUresult own_host_told(struct things *t)
{
	TRY(own_host(t));
	return tell_of_host(t);
}

static CUresult untell_host(struct things *t)
{
	return cu.cuMemHostUnregister(t->host);
}

static CUresult untell_and_leave_host(struct things *t)
{
	TRY(untell_host(t));
	return leave_host(t);
}

static CUresult make_array(struct things *t)
{
	const CUDA_ARRAY_DESCRIPTOR shape = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};

	return cu.cuArrayCreate_v2(&t->array, &shape);
}

static CUresult end_array(struct things *t)
{
	return cu.cuArrayDestroy(t->array);
}

/* As the library asks how large an array will be: nothing lies behind it. */
static CUresult make_deferred_array(struct things *t)
{
	const CUDA_ARRAY3D_DESCRIPTOR shape = {.Width = 1024,
					       .Height = 1024,
					       .Format = CU_AD_FORMAT_FLOAT,
					       .NumChannels = 1,
					       .Flags = CUDA_ARRAY3D_DEFERRED_MAPPING};

	return cu.cuArray3DCreate_v2(&t->array, &shape);
}

static CUresult make_mapping(struct things *t)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	TRY(cu.cuMemCreate(&t->handle, BLOCK_BYTES, &prop, 0));
	TRY(cu.cuMemAddressReserve(&t->block, BLOCK_BYTES, 0, 0, 0));
	return cu.cuMemMap(t->block, BLOCK_BYTES, 0, t->handle, 0);
}

static CUresult unmap(struct things *t)
{
	return cu.cuMemUnmap(t->block, BLOCK_BYTES);
}

static CUresult end_mapping(struct things *t)
{
	TRY(cu.cuMemRelease(t->handle));
	return cu.cuMemAddressFree(t->block, BLOCK_BYTES);
}

static CUresult end_whole_mapping(struct things *t)
{
	TRY(unmap(t));
	return end_mapping(t);
}

static CUresult ask_for_memory(struct things *t)
{
	size_t free_bytes, total_bytes;

	(void)t;
	return cu.cuMemGetInfo_v2(&free_bytes, &total_bytes);
}

static const struct call calls[] = {
	{"cuMemAlloc", &cu.cuMemAlloc_v2, nothing, make_block, free_block},
	{"cuMemFree", &cu.cuMemFree_v2, make_block, free_block, nothing},
	{"cuMemAllocManaged", &cu.cuMemAllocManaged, nothing, make_managed, free_block},
	{"cuMemFree (managed)", &cu.cuMemAllocManaged, make_managed, free_block, nothing},
	{"cuMemHostAlloc", &cu.cuMemHostAlloc, nothing, make_host, free_host},
	{"cuMemFreeHost", &cu.cuMemHostAlloc, make_host, free_host, nothing},
	{"cuMemHostRegister", &cu.cuMemHostUnregister, own_host, tell_of_host, untell_and_leave_host},
	{"cuMemHostUnregister", &cu.cuMemHostUnregister, own_host_told, untell_host, leave_host},
	{"cuArrayCreate", &cu.cuArrayCreate_v2, nothing, make_array, end_array},
	{"cuArrayDestroy", &cu.cuArrayDestroy, make_array, end_array, nothing},
	{"cuArray3DCreate, deferred", &cu.cuArray3DCreate_v2, nothing, make_deferred_array, end_array},
	{"cuArrayDestroy, deferred", &cu.cuArray3DCreate_v2, make_deferred_array, end_array, nothing},
	{"cuMemCreate, cuMemMap", &cu.cuMemMap, nothing, make_mapping, end_whole_mapping},
	{"cuMemUnmap", &cu.cuMemUnmap, make_mapping, unmap, end_mapping},
	{"cuMemGetInfo", &cu.cuMemGetInfo_v2, nothing, ask_for_memory, nothing},
};

const struct calls calls_of_memory = {"memory", calls, sizeof(calls) / sizeof(calls[0])};

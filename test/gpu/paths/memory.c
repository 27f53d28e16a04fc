/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory by pointer: plain, small blocks, pitched, managed. */
#include "parts.h"

#define MOST_BLOCKS (4u << 20)
#define PITCHED_WIDTH 65000 /* the driver makes it 65 024 or more */

static CUdeviceptr held;
static uint64_t held_bytes;

int touch_bytes(CUdeviceptr pointer, uint64_t bytes)
{
	unsigned char last = 0;

	if (cu.cuMemsetD8_v2(pointer, 0x5a, bytes) != CUDA_SUCCESS || cu.cuCtxSynchronize() != CUDA_SUCCESS ||
	    cu.cuMemcpyDtoH_v2(&last, pointer + bytes - 1, 1) != CUDA_SUCCESS)
		return 1;
	return last == 0x5a ? 0 : 1;
}

static int touch_held(void)
{
	return touch_bytes(held, held_bytes);
}

static void give_held(void)
{
	cu.cuMemFree_v2(held);
}

static int take_plain(uint64_t bytes)
{
	held_bytes = bytes;
	return (int)cu.cuMemAlloc_v2(&held, bytes);
}

static CUdeviceptr block[MOST_BLOCKS];
static uint64_t blocks;

static int take_block(uint64_t bytes)
{
	int error = blocks == MOST_BLOCKS ? PATH_BROKEN : (int)cu.cuMemAlloc_v2(&block[blocks], bytes);

	blocks += error == 0;
	return error;
}

static void give_blocks(void)
{
	while (blocks > 0)
		cu.cuMemFree_v2(block[--blocks]);
}

static const uint64_t mixed_bytes[] = { 600 << 10, 5000, 64 << 10 };
#define MIXED_BYTES ((600 << 10) + 5000 + (64 << 10))

/* One of each size, or none. */
static int take_mixed(uint64_t bytes)
{
	uint64_t before = blocks;
	int error = 0;

	(void)bytes;
	for (int i = 0; i < 3 && error == 0; i++)
		error = take_block(mixed_bytes[i]);
	while (error != 0 && blocks > before)
		cu.cuMemFree_v2(block[--blocks]);
	return error;
}

/* Managed memory is on the device once that has touched it. */
static int take_managed_block(uint64_t bytes)
{
	int error = blocks == MOST_BLOCKS
			    ? PATH_BROKEN
			    : (int)cu.cuMemAllocManaged(&block[blocks], bytes, CU_MEM_ATTACH_GLOBAL);

	if (error == 0 && (error = (int)cu.cuMemsetD8_v2(block[blocks], 0x5a, bytes)) != 0)
		cu.cuMemFree_v2(block[blocks]);
	blocks += error == 0;
	return error;
}

static int take_pitched(uint64_t bytes)
{
	size_t pitch;
	CUresult result = cu.cuMemAllocPitch_v2(&held, &pitch, PITCHED_WIDTH, bytes / PITCHED_WIDTH, 16);

	held_bytes = result == CUDA_SUCCESS ? pitch * (bytes / PITCHED_WIDTH) : 0;
	return (int)result;
}

static int take_managed(uint64_t bytes)
{
	held_bytes = bytes;
	return (int)cu.cuMemAllocManaged(&held, bytes, CU_MEM_ATTACH_GLOBAL);
}

struct path memory_paths[] = {
	{ .name = "cuMemAlloc", .granule = GRANULE, .take = take_plain, .give = give_held, .touch = touch_held },
	{ .name = "cuMemAlloc, 1 byte too long", .granule = GRANULE + 1, .flags = PATH_FILL, .take = take_block, .give = give_blocks },
	{ .name = "cuMemAlloc, blocks of 1.1 MiB", .granule = 1153434, .flags = PATH_FILL, .take = take_block, .give = give_blocks },
	{ .name = "cuMemAlloc, blocks of 600 KiB", .granule = 600 << 10, .flags = PATH_FILL, .take = take_block, .give = give_blocks },
	{ .name = "cuMemAlloc, blocks of 5000 B", .granule = 5000, .flags = PATH_FILL, .take = take_block, .give = give_blocks },
	{ .name = "cuMemAlloc, blocks of 64 KiB", .granule = 64 << 10, .flags = PATH_FILL, .take = take_block, .give = give_blocks },
	{ .name = "cuMemAlloc, 600 KiB, 5000 B, 64 KiB", .granule = MIXED_BYTES, .flags = PATH_FILL, .take = take_mixed, .give = give_blocks },
	{ .name = "cuMemAllocPitch", .granule = 32 * PITCHED_WIDTH, .take = take_pitched, .give = give_held, .touch = touch_held },
	{ .name = "cuMemAllocManaged", .granule = GRANULE, .flags = PATH_MANAGED, .take = take_managed, .give = give_held, .touch = touch_held },
	{ .name = "cuMemAllocManaged, blocks of 1.1 MiB", .granule = 1153434, .flags = PATH_FILL | PATH_MANAGED, .take = take_managed_block, .give = give_blocks },
	{ .name = "cuMemAllocManaged, blocks of 3 MiB", .granule = 3 * MIB, .flags = PATH_FILL | PATH_MANAGED, .take = take_managed_block, .give = give_blocks },
	{ .name = "cuMemAllocManaged, blocks of 600 KiB", .granule = 600 << 10, .flags = PATH_FILL | PATH_MANAGED, .take = take_managed_block, .give = give_blocks },
	{ .name = "cuMemAllocManaged, blocks of 100 KiB", .granule = 100 << 10, .flags = PATH_FILL | PATH_MANAGED, .take = take_managed_block, .give = give_blocks },
	{ .name = NULL },
};

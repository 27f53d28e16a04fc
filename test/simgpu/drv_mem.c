/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Plain device memory, pinned host memory, and questions about pointers. */
#define _GNU_SOURCE
#include "drv_share.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#define SMALL_BYTES SIM_MIB /* below this, allocations of a context share granules */
#define SMALL_ALIGN 512
#define PAGE_BYTES 4096

bool drv_fail_injected(void)
{
	if (drv.fail_next == 0)
		return false;
	drv.fail_next--;
	return true;
}

static void give_place(struct sim_block *block)
{
	if (block->physical_bytes == 0) {
		drv_small_give(block->ctx, block->base, block->span);
		return;
	}
	if (!drv_descriptor_keeps(block->base, block->device, block->physical_bytes))
		sim_mem_give(block->device, block->physical_bytes);
	drv_va_give(block->base - block->before, block->span, block->low);
}

void drv_block_release(struct sim_block *block)
{
	switch (block->kind) {
	case SIM_DEVICE:
	case SIM_ARRAY:
		give_place(block);
		break;
	case SIM_ASYNC:
		drv_pool_give(block->pool, block->span);
		drv_va_give(block->base, block->span, block->low);
		break;
	case SIM_GRAPH: /* the addresses stay the graph's */
		drv_pool_give(block->pool, block->physical_bytes);
		break;
	case SIM_MANAGED:
		drv_managed_release(block);
		break;
	case SIM_HOST:
		munmap((void *)(uintptr_t)block->base, block->span);
		break;
	case SIM_MAPPED:
		drv_vmm_unmapped(block->vmm);
		break;
	case SIM_IMPORTED:
		drv_share_closed(block->base);
		drv_va_give(block->base, block->span, block->low);
		break;
	}
	drv_block_drop(block);
}

/* Physical memory and addresses; 0 when one of them is not there. */
static CUdeviceptr take_place(CUcontext ctx, uint64_t span, bool low)
{
	CUdeviceptr base;

	if (sim_mem_take(ctx->device, span) != 0)
		return 0;
	base = drv_va_take(span, low);
	if (base == 0)
		sim_mem_give(ctx->device, span);
	return base;
}

CUresult drv_block_allocate(CUcontext ctx, enum sim_kind kind, CUdeviceptr *out, size_t bytes, bool low)
{
	bool straddles = sim_conf.straddle && bytes < SMALL_BYTES && bytes > SMALL_ALIGN;
	bool small = bytes < SMALL_BYTES && !straddles;
	uint64_t span = straddles ? 2 * SIM_GRANULE_BYTES
				  : sim_round_up(bytes, small ? SMALL_ALIGN : SIM_GRANULE_BYTES);
	uint64_t before = straddles ? SIM_GRANULE_BYTES - SMALL_ALIGN : 0;
	struct sim_block *block;
	CUdeviceptr base;

	drv_share_look();
	if (bytes > UINT64_MAX / 2 || drv_fail_injected())
		return CUDA_ERROR_OUT_OF_MEMORY;
	base = small ? drv_small_take(ctx, span, low ? SIM_PLACE_LOW : SIM_PLACE_WIDE)
		     : take_place(ctx, span, low);
	if (base == 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	base += before;
	block = drv_block_new(kind, base, bytes, ctx);
	if (block == NULL) {
		struct sim_block none = {.base = base,
					 .before = before,
					 .span = span,
					 .low = low,
					 .ctx = ctx,
					 .device = ctx->device,
					 .physical_bytes = small ? 0 : span};

		give_place(&none);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	block->span = span;
	block->before = before;
	block->low = low;
	block->ordinal = ctx->ordinal;
	block->device = ctx->device;
	block->physical_bytes = small ? 0 : span;
	*out = base;
	return CUDA_SUCCESS;
}

static CUresult alloc_plain(CUdeviceptr *out, size_t bytes, bool low)
{
	CUresult result;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (out == NULL || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_safe());
	drv_lock();
	result = drv_block_allocate(ctx, SIM_DEVICE, out, bytes, low);
	return drv_unlock(result);
}

CUresult sim_cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
	return alloc_plain(out, bytes, false);
}

CUresult sim_cuMemAlloc(CUdeviceptr_v1 *out, unsigned int bytes)
{
	CUdeviceptr wide;
	CUresult result = alloc_plain(out != NULL ? &wide : NULL, bytes, true);

	if (result == CUDA_SUCCESS)
		*out = (CUdeviceptr_v1)wide;
	return result;
}

static CUresult alloc_pitch(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
			    unsigned element, bool low)
{
	size_t row = sim_round_up(width, sim_conf.pitch_bytes), bytes;

	NEED(drv_ready());
	if (out == NULL || pitch == NULL || width == 0 || height == 0 || row < width ||
	    (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	if (__builtin_mul_overflow(row, height, &bytes))
		return CUDA_ERROR_INVALID_VALUE;
	NEED(alloc_plain(out, bytes, low));
	*pitch = row;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
				unsigned int element)
{
	return alloc_pitch(out, pitch, width, height, element, false);
}

CUresult sim_cuMemAllocPitch(CUdeviceptr_v1 *out, unsigned int *pitch, unsigned int width,
			     unsigned int height, unsigned int element)
{
	CUdeviceptr wide;
	size_t row;

	NEED(drv_ready());
	if (out == NULL || pitch == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(alloc_pitch(&wide, &row, width, height, element, true));
	*out = (CUdeviceptr_v1)wide;
	*pitch = (unsigned)row;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemFree_v2(CUdeviceptr pointer)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_block *block;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (pointer == 0)
		return CUDA_SUCCESS;
	drv_lock();
	block = drv_block_find(pointer);
	if (block != NULL && block->base == pointer && block->kind != SIM_HOST &&
	    (block->kind < SIM_MAPPED || (block->kind == SIM_IMPORTED && block->ctx == NULL))) {
		drv_block_release(block);
		result = CUDA_SUCCESS;
	}
	return drv_unlock(result);
}

CUresult sim_cuMemFree(CUdeviceptr_v1 pointer)
{
	return sim_cuMemFree_v2(pointer);
}

CUresult sim_cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
	uint64_t room, used;
	CUcontext ctx;

	drv_asked(SIM_ASKED_INFO);
	NEED(drv_current(&ctx));
	if (free_bytes == NULL || total_bytes == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	drv_share_look();
	drv_unlock(CUDA_SUCCESS);
	room = sim_conf.device[ctx->device].mem_bytes - sim_conf.device[ctx->device].reserved_bytes;
	used = sim_mem_used(ctx->device);
	*total_bytes = room;
	*free_bytes = used < room ? room - used : 0;
	return CUDA_SUCCESS;
}

CUresult sim_cuMemGetInfo(unsigned int *free_bytes, unsigned int *total_bytes)
{
	size_t free_wide, total_wide;

	if (free_bytes == NULL || total_bytes == NULL) {
		NEED(drv_ready());
		return CUDA_ERROR_INVALID_VALUE;
	}
	NEED(sim_cuMemGetInfo_v2(&free_wide, &total_wide));
	*free_bytes = free_wide > UINT32_MAX ? UINT32_MAX : (unsigned)free_wide;
	*total_bytes = total_wide > UINT32_MAX ? UINT32_MAX : (unsigned)total_wide;
	return CUDA_SUCCESS;
}

/* Memory that the host can touch: real mappings, which cost nothing until they are. */
void *drv_map(uint64_t span, uint64_t align)
{
	char *raw = mmap(NULL, span + align, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at;

	if (raw == MAP_FAILED)
		return MAP_FAILED;
	at = (char *)sim_round_up((uintptr_t)raw, align);
	if (at > raw)
		munmap(raw, (size_t)(at - raw));
	munmap(at + span, (size_t)(raw + align - at));
	return at;
}

static CUresult map_host(CUcontext ctx, size_t bytes, void **out)
{
	uint64_t span = sim_round_up(bytes, PAGE_BYTES);
	struct sim_block *block;
	void *at;

	if (bytes > UINT64_MAX / 2)
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = drv_map(span, PAGE_BYTES);
	if (at == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv_lock();
	block = drv_block_new(SIM_HOST, (uintptr_t)at, bytes, ctx);
	if (block != NULL) {
		block->span = span;
		block->ordinal = ctx->ordinal;
		block->device = ctx->device;
		*out = at;
	} else
		munmap(at, span);
	return drv_unlock(block != NULL ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

CUresult sim_cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (pointer == NULL || bytes == 0 || flags > 7)
		return CUDA_ERROR_INVALID_VALUE;
	return map_host(ctx, bytes, pointer);
}

CUresult sim_cuMemAllocHost_v2(void **pointer, size_t bytes)
{
	return sim_cuMemHostAlloc(pointer, bytes, 0);
}

CUresult sim_cuMemAllocHost(void **pointer, unsigned int bytes)
{
	return sim_cuMemHostAlloc(pointer, bytes, 0);
}

CUresult sim_cuMemFreeHost(void *pointer)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_block *block;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (pointer == NULL)
		return CUDA_SUCCESS;
	drv_lock();
	block = drv_block_find((uintptr_t)pointer);
	if (block != NULL && block->kind == SIM_HOST && block->base == (uintptr_t)pointer) {
		drv_block_release(block);
		result = CUDA_SUCCESS;
	}
	return drv_unlock(result);
}

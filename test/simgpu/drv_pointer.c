/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a pointer is, and copies and fills. Device memory holds nothing here: what is copied from
 * it reads as zeros. Managed and pinned memory is real. */
#define _GNU_SOURCE
#include "drv_copy.h"

#include <string.h>
#include <sys/mman.h>

CUresult sim_cuPointerGetAttribute(void *data, int attribute, CUdeviceptr pointer)
{
	struct sim_block *block;
	CUresult result = CUDA_SUCCESS;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (data == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	switch (attribute) {
	case 1: /* CONTEXT */
		if (block->ctx == NULL)
			result = CUDA_ERROR_INVALID_VALUE;
		else
			*(CUcontext *)data = block->ctx;
		break;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: /* host 1, device 2 */
		*(unsigned *)data = block->kind == SIM_HOST ? 1 : 2;
		break;
	case 3: /* DEVICE_POINTER */
		*(CUdeviceptr *)data = pointer;
		break;
	case 4: /* HOST_POINTER */
		if (block->kind != SIM_HOST && block->kind != SIM_MANAGED)
			result = CUDA_ERROR_INVALID_VALUE;
		else
			*(void **)data = (void *)(uintptr_t)pointer;
		break;
	case 8: /* IS_MANAGED */
		*(unsigned *)data = block->kind == SIM_MANAGED;
		break;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		*(int *)data = block->ordinal;
		break;
	case 11: /* RANGE_START_ADDR */
		*(CUdeviceptr *)data = block->base;
		break;
	case 12: /* RANGE_SIZE */
		*(size_t *)data = block->bytes;
		break;
	case 13: /* MAPPED */
		*(unsigned *)data = 1;
		break;
	case 17: /* MEMPOOL_HANDLE */
		*(CUmemoryPool *)data = block->pool;
		break;
	default:
		result = CUDA_ERROR_INVALID_VALUE;
	}
	return drv_unlock(result);
}

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr pointer)
{
	struct sim_block *block;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_NOT_FOUND);
	if (base != NULL)
		*base = block->base;
	if (size != NULL)
		*size = block->bytes;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemGetAddressRange(CUdeviceptr_v1 *base, unsigned int *size, CUdeviceptr_v1 pointer)
{
	CUdeviceptr wide;
	size_t bytes;

	NEED(sim_cuMemGetAddressRange_v2(&wide, &bytes, pointer));
	if (base != NULL)
		*base = (CUdeviceptr_v1)wide;
	if (size != NULL)
		*size = (unsigned)bytes;
	return CUDA_SUCCESS;
}

/* Whether the driver may write or read there. With the lock held. */
static struct sim_block *spans(CUdeviceptr pointer, uint64_t bytes)
{
	struct sim_block *block = drv_block_find(pointer);

	return block != NULL && bytes <= block->span - (pointer - block->base) ? block : NULL;
}

static CUresult prefetch(CUdeviceptr pointer, size_t bytes, CUdevice to, CUstream handle)
{
	struct sim_block *block;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (to >= 0)
		NEED(drv_device(to));
	drv_lock();
	block = spans(pointer, bytes);
	if (block == NULL || block->kind != SIM_MANAGED || bytes == 0)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	if (to >= 0)
		drv_managed_move_in(block, drv.device[to]);
	else
		drv_managed_move_out(block);
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
	return prefetch(pointer, bytes, device < 0 ? -1 : device, stream); /* CU_DEVICE_CPU is -1 */
}

CUresult sim_cuMemPrefetchAsync_ptsz(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream)
{
	return sim_cuMemPrefetchAsync(pointer, bytes, device, drv_ptsz(stream));
}

CUresult sim_cuMemPrefetchAsync_v2(CUdeviceptr pointer, size_t bytes, CUmemLocation location,
				   unsigned int flags, CUstream stream)
{
	if (flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	return prefetch(pointer, bytes,
			location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1, stream);
}

CUresult sim_cuMemPrefetchAsync_v2_ptsz(CUdeviceptr pointer, size_t bytes, CUmemLocation location,
					unsigned int flags, CUstream stream)
{
	return sim_cuMemPrefetchAsync_v2(pointer, bytes, location, flags, drv_ptsz(stream));
}

/* Zeroing whole pages costs no host memory. */
static void fill_real(CUdeviceptr to, const void *value, size_t width, size_t count)
{
	unsigned char *at = (unsigned char *)(uintptr_t)to;
	static const unsigned char zero[8];

	if (memcmp(value, zero, width) == 0) {
		size_t bytes = width * count;
		uintptr_t first = sim_round_up((uintptr_t)at, 4096), end = (uintptr_t)at + bytes;
		uintptr_t last = end / 4096 * 4096;

		if (first < last && madvise((void *)first, last - first, MADV_DONTNEED) == 0) {
			memset(at, 0, first - (uintptr_t)at);
			memset((void *)last, 0, end - last);
			return;
		}
	}
	for (size_t i = 0; i < count; i++)
		memcpy(at + i * width, value, width);
}

static CUresult take_time(CUstream stream, uint64_t bytes)
{
	return sim_conf.memory_gb_s != 0 ? drv_enqueue(stream, bytes / sim_conf.memory_gb_s) : CUDA_SUCCESS;
}

CUresult drv_fill_rows(CUdeviceptr to, size_t pitch, const void *value, size_t width, size_t count, size_t rows, CUstream handle)
{
	struct sim_block *block;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (count == 0 || rows == 0)
		return CUDA_SUCCESS;
	if (to % width != 0 || count > UINT32_MAX * 16ull || rows > UINT32_MAX || pitch > UINT32_MAX ||
	    (rows > 1 && pitch < width * count))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = spans(to, (rows - 1) * pitch + width * count);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	drv_managed_move_in(block, stream->ctx->device);
	for (size_t row = 0; row < rows && (block->kind == SIM_HOST || block->kind == SIM_MANAGED); row++)
		fill_real(to + row * pitch, value, width, count);
	drv_unlock(CUDA_SUCCESS);
	return take_time(handle, width * count * rows);
}

CUresult drv_fill(CUdeviceptr to, const void *value, size_t width, size_t count, CUstream handle)
{
	return drv_fill_rows(to, 0, value, width, count, 1, handle);
}

static bool is_real(const struct sim_block *block)
{
	return block == NULL || block->kind == SIM_HOST || block->kind == SIM_MANAGED;
}

CUresult drv_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool to_device, bool from_device,
		  CUstream handle, bool wait)
{
	struct sim_block *target, *source;
	CUstream stream;
	bool within;

	NEED(drv_stream(handle, &stream));
	if (bytes == 0)
		return CUDA_SUCCESS;
	if (wait)
		NEED(drv_wait(handle));
	drv_lock();
	target = spans(to, bytes);
	source = spans(from, bytes);
	if ((to_device && target == NULL) || (from_device && source == NULL) || to == 0 || from == 0)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	if (is_real(target) && is_real(source))
		memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
	else if (is_real(target))
		memset((void *)(uintptr_t)to, 0, bytes);
	within = target != NULL && source != NULL && target->kind != SIM_HOST && source->kind != SIM_HOST;
	drv_unlock(CUDA_SUCCESS);
	return within ? take_time(handle, bytes) : CUDA_SUCCESS;
}

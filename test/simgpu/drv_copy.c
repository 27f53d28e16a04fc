/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills, which take no time. Device memory holds nothing here: what is copied from it reads as
 * zeros. Managed and pinned memory is real. */
#define _GNU_SOURCE
#include "drv.h"

#include <string.h>
#include <sys/mman.h>

/* Zeroing whole pages costs no host memory. */
static void fill_real(CUdeviceptr to, unsigned char value, size_t bytes)
{
	unsigned char *at = (unsigned char *)(uintptr_t)to;
	uintptr_t first = sim_round_up((uintptr_t)at, 4096), end = (uintptr_t)at + bytes;
	uintptr_t last = end / 4096 * 4096;

	if (value == 0 && first < last && madvise((void *)first, last - first, MADV_DONTNEED) == 0) {
		memset(at, 0, first - (uintptr_t)at);
		memset((void *)last, 0, end - last);
		return;
	}
	memset(at, value, bytes);
}

CUresult sim_cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count)
{
	struct sim_block *block;
	CUstream stream;

	NEED(drv_stream(NULL, &stream));
	if (count == 0)
		return CUDA_SUCCESS;
	drv_lock();
	block = drv_spans(to, count);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	drv_managed_move_in(block, stream->ctx->device);
	if (block->kind == SIM_HOST || block->kind == SIM_MANAGED)
		fill_real(to, value, count);
	return drv_unlock(CUDA_SUCCESS);
}

/* The host can read and write what the driver does not know, and what is real. */
static bool is_real(const struct sim_block *block)
{
	return block == NULL || block->kind == SIM_HOST || block->kind == SIM_MANAGED;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool to_device, CUstream handle)
{
	struct sim_block *target, *source;
	CUstream stream;

	NEED(drv_stream(handle, &stream));
	if (bytes == 0)
		return CUDA_SUCCESS;
	NEED(drv_wait(handle));
	drv_lock();
	target = drv_spans(to, bytes);
	source = drv_spans(from, bytes);
	if (to == 0 || from == 0 || (to_device ? target : source) == NULL)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	if (is_real(target) && is_real(source))
		memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
	else if (is_real(target))
		memset((void *)(uintptr_t)to, 0, bytes);
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy(to, (uintptr_t)from, bytes, true, NULL);
}

CUresult sim_cuMemcpyHtoD(CUdeviceptr_v1 to, const void *from, unsigned int bytes)
{
	return sim_cuMemcpyHtoD_v2(to, from, bytes);
}

CUresult sim_cuMemcpyHtoD_v2_ptds(CUdeviceptr to, const void *from, size_t bytes)
{
	return copy(to, (uintptr_t)from, bytes, true, CU_STREAM_PER_THREAD);
}

CUresult sim_cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes)
{
	return copy((uintptr_t)to, from, bytes, false, NULL);
}

CUresult sim_cuMemcpyDtoH(void *to, CUdeviceptr_v1 from, unsigned int bytes)
{
	return sim_cuMemcpyDtoH_v2(to, from, bytes);
}

CUresult sim_cuMemcpyDtoH_v2_ptds(void *to, CUdeviceptr from, size_t bytes)
{
	return copy((uintptr_t)to, from, bytes, false, CU_STREAM_PER_THREAD);
}

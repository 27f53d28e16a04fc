/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Copies and fills. Device memory holds nothing here: what is copied from it reads as zeros. Managed and
 * pinned memory is real. */
#define _GNU_SOURCE
#include "drv_copy.h"

#include <string.h>
#include <sys/mman.h>

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

CUresult drv_take_host_time(CUstream stream, uint64_t bytes)
{
	return sim_conf.host_gb_s != 0 ? drv_hold(stream, bytes / sim_conf.host_gb_s) : CUDA_SUCCESS;
}

CUresult drv_fill_rows(CUdeviceptr to, size_t pitch, const void *value, size_t width, size_t count,
		       size_t rows, CUstream handle)
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
	block = drv_spans(to, (rows - 1) * pitch + width * count);
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

/* What one end of a copy is. */
struct place {
	bool real;  /* the host can write and read it */
	bool whole; /* the driver may write and read all of it */
	int device; /* -1: it lies on none */
};

/* With the lock held. */
static struct place place_of(const struct drv_end *end, const struct drv_box *box)
{
	uint64_t span = ((box->layers - 1) * end->layer_rows + box->rows - 1) * end->pitch + box->row_bytes,
		 bytes;
	struct place place = {.device = -1, .whole = true};
	struct sim_block *block;

	if (end->type == CU_MEMORYTYPE_ARRAY) {
		place.whole = drv_array_size(end->array, &bytes, &place.device) &&
			      bytes >= box->row_bytes * box->rows * box->layers;
		return place;
	}
	block = drv_spans(end->at, span);
	place.real = block == NULL || block->kind == SIM_HOST || block->kind == SIM_MANAGED;
	place.whole = end->at != 0 && (block != NULL || end->type != CU_MEMORYTYPE_DEVICE) &&
		      (box->rows * box->layers == 1 || end->pitch >= box->row_bytes);
	if (block != NULL && block->kind != SIM_HOST)
		place.device = block->device;
	return place;
}

static void *row_of(const struct drv_end *end, size_t layer, size_t row)
{
	return (void *)(uintptr_t)(end->at + (layer * end->layer_rows + row) * end->pitch);
}

static void move_rows(const struct drv_end *to, const struct drv_end *from, const struct drv_box *box,
		      bool from_real)
{
	for (size_t layer = 0; layer < box->layers; layer++)
		for (size_t row = 0; row < box->rows; row++) {
			if (from_real)
				memmove(row_of(to, layer, row), row_of(from, layer, row), box->row_bytes);
			else
				memset(row_of(to, layer, row), 0, box->row_bytes);
		}
}

CUresult drv_copy_box(const struct drv_end *to, const struct drv_end *from, const struct drv_box *box,
		      CUstream handle, bool wait)
{
	uint64_t bytes = box->row_bytes * box->rows * box->layers;
	struct place target, source;
	CUstream stream;
	bool within;

	NEED(drv_stream(handle, &stream));
	if (bytes == 0)
		return CUDA_SUCCESS;
	if (wait)
		NEED(drv_wait(handle));
	drv_lock();
	target = place_of(to, box);
	source = place_of(from, box);
	if (!target.whole || !source.whole)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	if (target.real && stream->capture == NULL)
		move_rows(to, from, box, source.real);
	within = target.device >= 0 && target.device == source.device;
	drv_unlock(CUDA_SUCCESS);
	NEED(within ? take_time(handle, bytes) : drv_take_host_time(handle, bytes));
	return wait && !within ? drv_wait(handle) : CUDA_SUCCESS;
}

CUresult drv_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, bool to_device, bool from_device,
		  CUstream stream, bool wait)
{
	struct drv_end target = {.type = to_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED, .at = to};
	struct drv_end source = {.type = from_device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_UNIFIED,
				 .at = from};

	return drv_copy_box(&target, &source, &(struct drv_box){bytes, 1, 1}, stream, wait);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory of other processes. Whoever opens it pays nothing as long as its owner lives. */
#define _GNU_SOURCE
#include "drv_share.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SHARED_MAGIC 0x53494d47505553ull

_Static_assert(sizeof(struct shared) <= sizeof(CUipcMemHandle), "fits into an IPC handle");

struct shared_file {
	struct shared shared;
	CUmemAllocationProp prop;
};

struct shared drv_share(int device, uint64_t at, uint64_t bytes)
{
	return (struct shared){ .magic = SHARED_MAGIC,
				.pid = getpid(),
				.device = device,
				.start_ticks = sim_proc_start_ticks(getpid()),
				.at = at,
				.bytes = bytes };
}

bool drv_share_is_ours(const struct shared *shared)
{
	return shared->pid == getpid() && shared->start_ticks == sim_proc_start_ticks(getpid());
}

bool drv_share_lives(const struct shared *shared)
{
	return shared->magic == SHARED_MAGIC && sim_proc_start_ticks(shared->pid) == shared->start_ticks;
}

int drv_share_file(const void *content, size_t bytes)
{
	int fd = memfd_create("simgpu", MFD_CLOEXEC);

	if (fd >= 0 && write(fd, content, bytes) != (ssize_t)bytes) {
		close(fd);
		fd = -1;
	}
	return fd;
}

struct sim_block *drv_share_open(int device, int ordinal, uint64_t bytes, CUcontext ctx)
{
	uint64_t span = sim_round_up(bytes, SIM_GRANULE_BYTES);
	CUdeviceptr base = drv_va_take(span, false);
	struct sim_block *block = base != 0 ? drv_block_new(SIM_IMPORTED, base, bytes, ctx) : NULL;

	if (block == NULL)
		return NULL;
	block->span = span;
	block->ordinal = ordinal;
	block->device = device;
	return block;
}

struct opened {
	struct opened *next;
	struct shared owner;
	uint64_t at;
	bool is_ours;
};

static struct opened *opened;

void drv_share_opened(uint64_t at, const struct shared *owner)
{
	struct opened *one = calloc(1, sizeof(*one));

	if (one == NULL)
		return;
	*one = (struct opened){ opened, *owner, at, false };
	opened = one;
}

void drv_share_look(void)
{
	drv_descriptor_look();
	for (struct opened *one = opened; one != NULL; one = one->next)
		if (!one->is_ours && !drv_share_lives(&one->owner))
			one->is_ours = sim_mem_take(one->owner.device,
						    sim_round_up(one->owner.bytes, SIM_GRANULE_BYTES)) == 0;
}

void drv_share_closed(uint64_t at)
{
	for (struct opened **from = &opened; *from != NULL; from = &(*from)->next) {
		struct opened *one = *from;

		if (one->at != at)
			continue;
		if (one->is_ours)
			sim_mem_give(one->owner.device, sim_round_up(one->owner.bytes, SIM_GRANULE_BYTES));
		*from = one->next;
		free(one);
		return;
	}
}

CUresult sim_cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr pointer)
{
	struct sim_block *block;
	struct shared shared;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (handle == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL || block->kind != SIM_DEVICE)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	shared = drv_share(block->device, block->base, block->bytes);
	memset(handle, 0, sizeof(*handle));
	memcpy(handle, &shared, sizeof(shared));
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuIpcOpenMemHandle_v2(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
	struct sim_block *block;
	struct shared shared;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	memcpy(&shared, &handle, sizeof(shared));
	if (pointer == NULL || flags != 1 || !drv_share_lives(&shared) || shared.device != ctx->device)
		return CUDA_ERROR_INVALID_VALUE;
	if (drv_share_is_ours(&shared))
		return CUDA_ERROR_INVALID_CONTEXT;
	drv_lock();
	block = drv_share_open(ctx->device, ctx->ordinal, shared.bytes, ctx);
	if (block == NULL)
		return drv_unlock(CUDA_ERROR_OUT_OF_MEMORY);
	drv_share_opened(block->base, &shared);
	*pointer = block->base;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuIpcOpenMemHandle(CUdeviceptr *pointer, CUipcMemHandle handle, unsigned int flags)
{
	return sim_cuIpcOpenMemHandle_v2(pointer, handle, flags);
}

CUresult sim_cuIpcCloseMemHandle(CUdeviceptr pointer)
{
	struct sim_block *block;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL || block->kind != SIM_IMPORTED || block->base != pointer)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	drv_block_release(block);
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemExportToShareableHandle(void *shared, CUmemGenericAllocationHandle handle, int type,
					  unsigned long long flags)
{
	struct shared_file file = { .prop = { 0 } };
	uint64_t bytes;
	CUresult result;
	int fd;

	NEED(drv_ready());
	if (shared == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	drv_lock();
	result = drv_vmm_describe(handle, &file.prop, &bytes);
	drv_unlock(result);
	if (result != CUDA_SUCCESS)
		return result;
	if ((file.prop.requestedHandleTypes & type) == 0)
		return CUDA_ERROR_INVALID_VALUE;
	file.shared = drv_share(file.prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE
					? drv.device[file.prop.location.id]
					: 0,
				handle, bytes);
	fd = drv_share_file(&file, sizeof(file));
	if (fd < 0)
		return (CUresult)SIM_CUDA_ERROR_OPERATING_SYSTEM;
	drv_lock();
	drv_descriptor_given(fd, drv_vmm_mapped(handle), 0);
	*(int *)shared = fd;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *handle, void *shared, int type)
{
	struct shared_file file;
	CUresult result;

	NEED(drv_ready());
	if (handle == NULL || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    pread((int)(intptr_t)shared, &file, sizeof(file), 0) != (ssize_t)sizeof(file) ||
	    !drv_share_lives(&file.shared))
		return CUDA_ERROR_INVALID_VALUE;
	drv_lock();
	if (drv_share_is_ours(&file.shared))
		result = drv_vmm_again(file.shared.at, handle);
	else
		result = drv_vmm_import(&file.prop, file.shared.bytes, handle);
	if (result == CUDA_SUCCESS && !drv_share_is_ours(&file.shared) &&
	    file.prop.location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		drv_share_opened(*handle, &file.shared);
	return drv_unlock(result);
}

/* Advice moves nothing. */
CUresult sim_cuMemAdvise(CUdeviceptr pointer, size_t bytes, int advice, CUdevice device)
{
	struct sim_block *block;
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (device >= 0)
		NEED(drv_device(device));
	drv_lock();
	block = drv_block_find(pointer);
	if (block == NULL || block->kind != SIM_MANAGED || bytes == 0 || advice < 1 || advice > 6)
		return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuMemAdvise_v2(CUdeviceptr pointer, size_t bytes, int advice, CUmemLocation location)
{
	return sim_cuMemAdvise(pointer, bytes, advice,
			       location.type == CU_MEM_LOCATION_TYPE_DEVICE ? location.id : -1);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Descriptors of memory: it lives as long as one is open in this process. */
#define _GNU_SOURCE
#include "drv_share.h"

#include <dirent.h>
#include <stdlib.h>
#include <sys/stat.h>

struct given {
	struct given *next;
	ino_t inode;
	struct sim_vmm *vmm; /* or a block: */
	CUdeviceptr base;    /* 0 once it was freed */
	int device;
	uint64_t bytes; /* which the descriptor alone keeps */
};

static struct given *all;

void drv_descriptor_given(int fd, struct sim_vmm *vmm, CUdeviceptr base)
{
	struct given *one = calloc(1, sizeof(*one));
	struct stat st;

	if (one == NULL || fstat(fd, &st) != 0) {
		free(one);
		return;
	}
	*one = (struct given){ all, st.st_ino, vmm, base, 0, 0 };
	all = one;
}

bool drv_descriptor_keeps(CUdeviceptr base, int device, uint64_t bytes)
{
	struct given *keeper = NULL;

	drv_descriptor_look();
	for (struct given *one = all; one != NULL; one = one->next) {
		if (one->base != base || one->vmm != NULL)
			continue;
		/* Of several the newest one keeps it, which is enough here. */
		if (keeper == NULL) {
			keeper = one;
			one->device = device;
			one->bytes = bytes;
		}
		one->base = 0;
	}
	return keeper != NULL;
}

static bool is_open(ino_t inode)
{
	DIR *folder = opendir("/proc/self/fd");
	struct dirent *entry;
	struct stat st;
	bool found = false;

	while (folder != NULL && !found && (entry = readdir(folder)) != NULL)
		found = entry->d_name[0] != '.' && fstat(atoi(entry->d_name), &st) == 0 && st.st_ino == inode;
	if (folder != NULL)
		closedir(folder);
	return found;
}

void drv_descriptor_look(void)
{
	for (struct given **at = &all; *at != NULL;) {
		struct given *one = *at;

		if (is_open(one->inode)) {
			at = &one->next;
			continue;
		}
		*at = one->next;
		if (one->bytes != 0)
			sim_mem_give(one->device, one->bytes);
		if (one->vmm != NULL)
			drv_vmm_unmapped(one->vmm);
		free(one);
	}
}

/* Memory in own granules, or whole mappings from the address on. */
CUresult sim_cuMemGetHandleForAddressRange(void *shared, CUdeviceptr address, size_t size, int type,
					   unsigned long long flags)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	struct sim_block *block;
	int fd = -1;

	NEED(drv_ready());
	if (shared == NULL || size == 0 || address % 4096 != 0 || size % 4096 != 0 || (flags & ~1ull) != 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (type != CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	drv_lock();
	for (CUdeviceptr at = address; at < address + size; at = block->base + block->span) {
		block = drv_block_find(at);
		if (block == NULL || (block->kind != SIM_DEVICE && block->kind != SIM_MAPPED) ||
		    (block->kind == SIM_DEVICE && address + size > block->base + block->span))
			return drv_unlock(CUDA_ERROR_INVALID_VALUE);
	}
	fd = drv_share_file("dma-buf", 7);
	for (CUdeviceptr at = address; fd >= 0 && at < address + size; at = block->base + block->span) {
		block = drv_block_find(at);
		if (block->kind == SIM_DEVICE)
			drv_descriptor_given(fd, NULL, block->base);
		else
			drv_descriptor_given(fd, drv_vmm_mapped_at(at), 0);
		result = CUDA_SUCCESS;
	}
	if (result == CUDA_SUCCESS)
		*(int *)shared = fd;
	return drv_unlock(result);
}

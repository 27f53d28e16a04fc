/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this process has allocated by pointer: how much, on which device, in which context. */
#ifndef VGPU_MEMORY_BLOCKS_H
#define VGPU_MEMORY_BLOCKS_H

#include "base/table.h"
#include "process/process.h"

/* vgpu_entry.count says what a block is. */
#define VGPU_BLOCK_PLAIN 1u   /* bytes: what it is charged */
#define VGPU_BLOCK_OF_POOL 2u /* its pool is charged for it: owner is the pool, bytes is 0 */
#define VGPU_BLOCK_MANAGED 3u /* as the first, of memory that the driver may keep on the host */
#define VGPU_BLOCK_SMALL 4u   /* its granules are charged (granules.h): bytes is its own size */

/* context is NULL for memory that does not end with one. */
void vgpu_blocks_put(struct vgpu_process *p, CUdeviceptr pointer, uint32_t device, uint64_t bytes,
		     CUcontext context, uint32_t kind);

/* Whether a block that is charged itself begins there, and on which device. */
bool vgpu_blocks_device(struct vgpu_process *p, CUdeviceptr pointer, uint32_t *device);

/* The charge for managed memory of this process. */
uint64_t vgpu_blocks_managed_bytes(const struct vgpu_process *p, uint32_t device);

/* Removes the block: done before the driver frees it, because from then on another thread may be
 * given the same address. False when the pointer is not one of ours. */
bool vgpu_blocks_take(struct vgpu_process *p, CUdeviceptr pointer, struct vgpu_entry *out);
void vgpu_blocks_put_back(struct vgpu_process *p, const struct vgpu_entry *block);

/* The driver has freed a block that was taken: gives back what it was charged. */
void vgpu_blocks_ended(struct vgpu_process *p, const struct vgpu_entry *block);

/* Forgets all blocks of a context and gives their bytes back. */
void vgpu_blocks_drop_context(struct vgpu_process *p, CUcontext context);

/* The blocks of one context now belong to another one. */
void vgpu_blocks_change_context(struct vgpu_process *p, CUcontext from, CUcontext to);

#endif

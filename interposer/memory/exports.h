/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that was given out as a file descriptor, a handle's or that of a range of addresses (dma-buf), lives
 * as long as the descriptor does, and so does its charge. Nobody tells when a descriptor is closed: it is
 * looked for when something else lets go of the memory, before a refusal, and with the growth of
 * the driver. It is open while this process has the same file at the same number, or one more descriptor of
 * that file than it had when it was given out: a duplicate, as far as one can see. What other processes were
 * sent is not followed. */
#ifndef VGPU_MEMORY_EXPORTS_H
#define VGPU_MEMORY_EXPORTS_H

#include "process/process.h"

/* Before the driver gives a descriptor out: holds the memory of a handle, or all that lies in a range. */
uint64_t vgpu_exports_begin(struct vgpu_process *p, CUmemGenericAllocationHandle handle);
uint64_t vgpu_exports_begin_range(struct vgpu_process *p, CUdeviceptr address, uint64_t size);
/* And after it; fd is -1 when it did not. */
void vgpu_exports_end(struct vgpu_process *p, uint64_t given, int fd);

/* Lets go of what closed descriptors have kept: of this memory, or for 0 of all. */
void vgpu_exports_look(struct vgpu_process *p, uint64_t memory);

/* With vmm_mutex held: the memory that a descriptor was given out for, or 0; how many hold a memory. */
uint64_t vgpu_exports_memory(struct vgpu_process *p, int fd);
uint32_t vgpu_exports_count(const struct vgpu_process *p, uint64_t memory);

/* A block was freed for which bytes were charged. True when descriptors may keep it: it is charged on, with so
 * many bytes at least. */
bool vgpu_exports_keep_block(struct vgpu_process *p, CUdeviceptr pointer, uint64_t bytes, uint64_t at_least);
bool vgpu_exports_has_block(struct vgpu_process *p, CUdeviceptr pointer);

#endif

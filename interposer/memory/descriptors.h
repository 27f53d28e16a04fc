/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that was given out as a file descriptor, a handle's or that of a range of addresses (dma-buf), lives
 * as long as the descriptor does, and so does its charge. The library does not see the close of a descriptor:
 * it looks for closed ones when something else lets go of the memory, before a refusal, and with the overhead
 * of the driver. A descriptor is open while this process has the same file at the same number, or one more
 * descriptor of that file than it had when it was given out: a duplicate, as far as one can see. Descriptors
 * that were sent to other processes are not followed. */
#ifndef VGPU_MEMORY_DESCRIPTORS_H
#define VGPU_MEMORY_DESCRIPTORS_H

#include "base/table.h"
#include "process/process.h"

/* Before the driver gives a descriptor out: holds the memory of a handle, or all that lies in a range, and
 * the block that begins there, if it is one that is charged itself (0: none). Returns the group that they are
 * then. */
uint64_t vgpu_descriptors_begin(struct vgpu_process *p, CUmemGenericAllocationHandle handle);
uint64_t vgpu_descriptors_begin_range(struct vgpu_process *p, CUdeviceptr address, uint64_t size,
				      CUdeviceptr block, uint32_t device);
/* It is the descriptor of the group. False when there is none after all. */
bool vgpu_descriptors_given(struct vgpu_process *p, uint64_t group, int fd);

bool vgpu_descriptors_has_block(struct vgpu_process *p, CUdeviceptr pointer);

/* With vmm_mutex held. What is of a group that was not given out, or was given out for the memory (0: for
 * any) and is closed, out of the table: so many at most. Each has its memory's key in owner. */
uint32_t vgpu_descriptors_take_group(struct vgpu_process *p, uint64_t group, struct vgpu_entry *list);
uint32_t vgpu_descriptors_take_closed(struct vgpu_process *p, uint64_t memory, struct vgpu_entry *list);
/* The memory that a descriptor was given out for, or 0; how many hold a memory. */
uint64_t vgpu_descriptors_memory(struct vgpu_process *p, int fd);
uint32_t vgpu_descriptors_count(const struct vgpu_process *p, uint64_t memory);

#endif

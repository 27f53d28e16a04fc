/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Who holds memory, and what goes with the last holder: handles and mappings (vmm.h), descriptors that it was
 * given out as (descriptors.h), and what it is bound to.
 *
 * Memory that is bound to a multicast object or to a logical endpoint may be kept by the driver as long
 * as it is bound, also when its handle and its mappings have gone, and so it stays charged. The
 * object itself is memory of no bytes (see vmm.h), and unbinds all when it ends. */
#ifndef VGPU_MEMORY_HOLDERS_H
#define VGPU_MEMORY_HOLDERS_H

#include "process/process.h"

/* One holder of the memory is gone; the last one gives its bytes back. */
void vgpu_holders_drop(struct vgpu_process *p, uint64_t memory);
/* The same of descriptors that are closed: those of this memory, or for 0 of all. */
void vgpu_holders_drop_closed(struct vgpu_process *p, uint64_t memory);

/* The driver has given a descriptor out for what vgpu_descriptors_begin returned; fd is -1
 * when it did not. */
void vgpu_holders_given_out(struct vgpu_process *p, uint64_t group, int fd);
/* A block was freed for which bytes were charged. True when descriptors may keep it: it is charged on, with
 * so many bytes at least. */
bool vgpu_holders_keep_block(struct vgpu_process *p, CUdeviceptr pointer, uint64_t bytes, uint64_t at_least);

/* A handle was made from what was given out: with type POSIX_FILE_DESCRIPTOR from the number that the pointer
 * shared itself is. What came from this very process is one more reference of the same memory; what came from
 * another one is charged to that, and is memory of no bytes here. */
void vgpu_holders_imported(struct vgpu_process *p, CUmemGenericAllocationHandle handle, const void *shared,
			   int type);

/* Memory that another process pays for was opened, or closed: counted, for what looks at the driver's
 * overhead. */
void vgpu_holders_opened(struct vgpu_process *p);
void vgpu_holders_closed(struct vgpu_process *p);

/* The object that memory is bound to; 0: an object that is not known. */
uint64_t vgpu_bind_multicast(struct vgpu_process *p, CUmemGenericAllocationHandle handle);
static inline uint64_t vgpu_bind_endpoint(CUlogicalEndpointId id)
{
	return 1ull << 63 | id;
}

/* The memory, which is held, was bound to the object. */
void vgpu_bind_noted(struct vgpu_process *p, uint64_t object, uint64_t offset, uint64_t memory);

/* The device's memory is not bound to this range of the object any more; and no memory to any of it. */
void vgpu_bind_ended(struct vgpu_process *p, uint64_t object, CUdevice ordinal, uint64_t offset,
		     uint64_t size);
void vgpu_bind_all_ended(struct vgpu_process *p, uint64_t object);

#endif

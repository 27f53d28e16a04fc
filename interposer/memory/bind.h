/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that is bound to a multicast object or to a logical endpoint. The driver may keep it as long
 * as it is bound, also when its handle and its mappings have gone, and so it stays charged. The
 * object itself is memory of no bytes (see vmm.h), and unbinds all when it ends. */
#ifndef VGPU_MEMORY_BIND_H
#define VGPU_MEMORY_BIND_H

#include "process/process.h"

/* What memory is bound to: an object that is not known is 0. */
uint64_t vgpu_bind_multicast(struct vgpu_process *p, CUmemGenericAllocationHandle handle);
static inline uint64_t vgpu_bind_endpoint(CUlogicalEndpointId id)
{
	return 1ull << 63 | id;
}

/* The memory, which is held, was bound to the object. */
void vgpu_bind_noted(struct vgpu_process *p, uint64_t object, uint64_t offset, uint64_t memory);

/* What of the device's memory was bound there is not any more; and nothing of any. */
void vgpu_bind_ended(struct vgpu_process *p, uint64_t object, CUdevice ordinal, uint64_t offset, uint64_t size);
void vgpu_bind_all_ended(struct vgpu_process *p, uint64_t object);

#endif

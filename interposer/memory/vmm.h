/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory made by cuMemCreate lives as long as any handle reference or any mapping of it, and so
 * does its charge. Each step is noted before the driver takes it, where another thread could
 * otherwise see an address or a handle used again; the caller undoes it when the driver says no. */
#ifndef VGPU_MEMORY_VMM_H
#define VGPU_MEMORY_VMM_H

#include "base/table.h"
#include "process/process.h"

/* Flags of a memory. */
#define VGPU_VMM_UNSEEN 1u /* a handle of it was released, so that NVML may not show it any more */
#define VGPU_VMM_OPENED 2u /* another process pays for it */
#define VGPU_VMM_KEPT 4u   /* nothing but descriptors hold it */

/* cuMemCreate has made the handle; or cuMulticastCreate one of no bytes, on no particular device. */
void vgpu_vmm_created(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint32_t device,
		      uint64_t bytes);

/* One reference of the handle goes; the memory stays counted until vgpu_holders_drop. Returns the
 * memory's key, 0 when the handle is not one of ours. */
uint64_t vgpu_vmm_release(struct vgpu_process *p, CUmemGenericAllocationHandle handle);
void vgpu_vmm_unrelease(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint64_t memory);

/* Holds the memory of a handle, or what is mapped at an address, for a mapping to be made. Returns its
 * key or 0. */
uint64_t vgpu_vmm_hold(struct vgpu_process *p, CUmemGenericAllocationHandle handle);
uint64_t vgpu_vmm_hold_at(struct vgpu_process *p, CUdeviceptr address);
void vgpu_vmm_mapped(struct vgpu_process *p, CUdeviceptr pointer, uint64_t size, uint64_t memory);

/* Takes the mappings that start in the range out of the account into list, at most room of them.
 * Each has its memory's key in owner; vgpu_vmm_mapped puts one back. */
uint32_t vgpu_vmm_unmap(struct vgpu_process *p, CUdeviceptr pointer, uint64_t size, struct vgpu_entry *list,
			uint32_t room);

/* cuMemRetainAllocationHandle has returned the handle for an address. */
void vgpu_vmm_retained(struct vgpu_process *p, CUmemGenericAllocationHandle handle, CUdeviceptr address);

/* Memory that lives on by mappings or imports after its handle was released. An H200's driver 580
 * shows it as nobody's then. */
uint64_t vgpu_vmm_unseen_bytes(struct vgpu_process *p, uint32_t device);

/* With vmm_mutex held: the same with flags; one more reference of a handle; the memory of a handle, 0 when it
 * is not one of ours; one more holder of a memory, returns its key, or 0 when it is gone; memory of no bytes
 * with one holder; what is charged for it from now on, returns its device. */
void vgpu_vmm_create(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint32_t device,
		     uint64_t bytes, uint32_t flags);
void vgpu_vmm_refer(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint64_t memory);
uint64_t vgpu_vmm_memory_of(struct vgpu_process *p, CUmemGenericAllocationHandle handle);
uint64_t vgpu_vmm_hold_key(struct vgpu_process *p, uint64_t memory);
uint64_t vgpu_vmm_new_key(struct vgpu_process *p, uint32_t device);
uint32_t vgpu_vmm_charged(struct vgpu_process *p, uint64_t memory, uint64_t bytes);

#endif

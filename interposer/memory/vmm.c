/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory/vmm.h"

#include "base/futex.h"
#include "base/table.h"
#include "memory/own.h"

/* Tables, all under vmm_mutex:
 *   vmm_memory    key → device, bytes, count of holders (handle references and mappings), owner: flags
 *   vmm_handles   handle → owner: key of its memory, count of references
 *   vmm_mappings  address → owner: key of its memory, bytes: size of the mapping */

uint64_t vgpu_vmm_unseen_bytes(struct vgpu_process *p, uint32_t device)
{
	uint64_t sum = 0;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	for (uint64_t i = 0; i < vgpu_memory(p)->vmm_memory.capacity; i++) {
		const struct vgpu_entry *memory = &vgpu_memory(p)->vmm_memory.entry[i];

		if (memory->key != 0 && (memory->owner & VGPU_VMM_UNSEEN) != 0 && memory->device == device)
			sum += memory->bytes;
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return sum;
}

void vgpu_vmm_create(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint32_t device,
		     uint64_t bytes, uint32_t flags)
{
	struct vgpu_entry memory = {.key = ++vgpu_memory(p)->vmm_last,
				    .bytes = bytes,
				    .owner = flags,
				    .device = device,
				    .count = 1};
	struct vgpu_entry reference = {.key = handle, .owner = memory.key, .count = 1};

	/* Without memory for it the charge stays until the process ends. */
	if (vgpu_table_put(&vgpu_memory(p)->vmm_memory, &memory))
		vgpu_table_put(&vgpu_memory(p)->vmm_handles, &reference);
}

void vgpu_vmm_created(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint32_t device,
		      uint64_t bytes)
{
	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	vgpu_vmm_create(p, handle, device, bytes, 0);
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
}

uint64_t vgpu_vmm_release(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	struct vgpu_entry *reference;
	struct vgpu_entry gone;
	uint64_t memory = 0;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	reference = vgpu_table_find(&vgpu_memory(p)->vmm_handles, handle);
	if (reference != NULL) {
		memory = reference->owner;
		if (--reference->count == 0) {
			struct vgpu_entry *held = vgpu_table_find(&vgpu_memory(p)->vmm_memory, memory);

			if (held != NULL)
				held->owner |= VGPU_VMM_UNSEEN;
			vgpu_table_take(&vgpu_memory(p)->vmm_handles, handle, &gone);
		}
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return memory;
}

void vgpu_vmm_refer(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint64_t memory)
{
	struct vgpu_entry *reference = vgpu_table_find(&vgpu_memory(p)->vmm_handles, handle);
	struct vgpu_entry first = {.key = handle, .owner = memory, .count = 1};

	if (reference != NULL)
		reference->count++;
	else
		vgpu_table_put(&vgpu_memory(p)->vmm_handles, &first);
}

void vgpu_vmm_unrelease(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint64_t memory)
{
	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	vgpu_vmm_refer(p, handle, memory);
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
}

uint64_t vgpu_vmm_hold_key(struct vgpu_process *p, uint64_t key)
{
	struct vgpu_entry *memory = key != 0 ? vgpu_table_find(&vgpu_memory(p)->vmm_memory, key) : NULL;

	if (memory == NULL)
		return 0;
	memory->count++;
	return key;
}

uint64_t vgpu_vmm_new_key(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_entry memory = {.key = ++vgpu_memory(p)->vmm_last, .device = device, .count = 1};

	return vgpu_table_put(&vgpu_memory(p)->vmm_memory, &memory) ? memory.key : 0;
}

uint32_t vgpu_vmm_charged(struct vgpu_process *p, uint64_t key, uint64_t bytes)
{
	struct vgpu_entry *memory = vgpu_table_find(&vgpu_memory(p)->vmm_memory, key);

	if (memory == NULL)
		return 0;
	memory->bytes = bytes;
	memory->owner |= VGPU_VMM_UNSEEN;
	return memory->device;
}

uint64_t vgpu_vmm_memory_of(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	struct vgpu_entry *reference = vgpu_table_find(&vgpu_memory(p)->vmm_handles, handle);

	return reference != NULL ? reference->owner : 0;
}

/* With the mutex held. */
static uint64_t memory_at(struct vgpu_process *p, CUdeviceptr address)
{
	struct vgpu_entry *found = vgpu_table_find(&vgpu_memory(p)->vmm_mappings, address);
	uint64_t key = found != NULL ? found->owner : 0;

	for (uint64_t i = 0; key == 0 && i < vgpu_memory(p)->vmm_mappings.capacity; i++) {
		struct vgpu_entry *mapping = &vgpu_memory(p)->vmm_mappings.entry[i];

		if (mapping->key != 0 && address >= mapping->key && address - mapping->key < mapping->bytes)
			key = mapping->owner;
	}
	return key;
}

uint64_t vgpu_vmm_hold(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	uint64_t key;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	key = vgpu_vmm_hold_key(p, vgpu_vmm_memory_of(p, handle));
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return key;
}

uint64_t vgpu_vmm_hold_at(struct vgpu_process *p, CUdeviceptr address)
{
	uint64_t key;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	key = vgpu_vmm_hold_key(p, memory_at(p, address));
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return key;
}

void vgpu_vmm_mapped(struct vgpu_process *p, CUdeviceptr pointer, uint64_t size, uint64_t memory)
{
	struct vgpu_entry mapping = {.key = pointer, .bytes = size, .owner = memory, .count = 1};

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	vgpu_table_put(&vgpu_memory(p)->vmm_mappings, &mapping);
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
}

uint32_t vgpu_vmm_unmap(struct vgpu_process *p, CUdeviceptr pointer, uint64_t size, struct vgpu_entry *list,
			uint32_t room)
{
	CUdeviceptr at = pointer;
	uint32_t count = 0;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	/* Mappings that follow each other, as a rule just one. */
	while (count < room && at - pointer < size &&
	       vgpu_table_take(&vgpu_memory(p)->vmm_mappings, at, &list[count]))
		at += list[count++].bytes;
	/* One of them is not ours (memory of the host, say): look at all. */
	for (uint64_t i = 0;
	     count < room && at - pointer < size && i < vgpu_memory(p)->vmm_mappings.capacity;) {
		uint64_t key = vgpu_memory(p)->vmm_mappings.entry[i].key;

		if (key != 0 && key - pointer < size && key >= pointer)
			count += vgpu_table_take(&vgpu_memory(p)->vmm_mappings, key, &list[count]);
		else
			i++;
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return count;
}

void vgpu_vmm_retained(struct vgpu_process *p, CUmemGenericAllocationHandle handle, CUdeviceptr address)
{
	uint64_t key;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	key = vgpu_vmm_memory_of(p, handle);
	key = vgpu_vmm_hold_key(p, key != 0 ? key : memory_at(p, address));
	if (key != 0)
		vgpu_vmm_refer(p, handle, key);
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * vgpu_memory(p)->vmm_bindings, under vmm_mutex: a number of its own → owner: key of the memory, bytes: the
 * offset that it is bound at, device: the memory's, count: of the object. */
#include "memory/holders.h"

#include "account/account.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "base/table.h"
#include "driver/device.h"
#include "memory/descriptors.h"
#include "memory/own.h"
#include "memory/vmm.h"
#include "tuning.h"

#define ANY_DEVICE (-3)

void vgpu_holders_opened(struct vgpu_process *p)
{
	ADD(p->opened, 1);
}

void vgpu_holders_closed(struct vgpu_process *p)
{
	uint32_t closed = GET(vgpu_memory(p)->closed);

	/* A close that was not seen to be opened changes nothing. */
	while (closed != GET(p->opened) &&
	       !__atomic_compare_exchange_n(&vgpu_memory(p)->closed, &closed, closed + 1, true,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static uint32_t tag_of(uint64_t object)
{
	return (uint32_t)(object * 0x9e3779b97f4a7c15ull >> 32);
}

static bool take_binding(struct vgpu_process *p, uint32_t tag, int device, uint64_t offset, uint64_t size,
			 struct vgpu_entry *out)
{
	bool found = false;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	for (uint64_t i = 0; i < vgpu_memory(p)->vmm_bindings.capacity && !found; i++) {
		const struct vgpu_entry *binding = &vgpu_memory(p)->vmm_bindings.entry[i];

		if (binding->key != 0 && binding->count == tag &&
		    (device == ANY_DEVICE || (int)binding->device == device) && binding->bytes >= offset &&
		    binding->bytes - offset < size)
			found = vgpu_table_take(&vgpu_memory(p)->vmm_bindings, binding->key, out);
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return found;
}

/* Those of the object on the device that are bound within the range. */
static void unbind(struct vgpu_process *p, uint64_t object, int device, uint64_t offset, uint64_t size)
{
	struct vgpu_entry binding;

	while (object != 0 && take_binding(p, tag_of(object), device, offset, size, &binding))
		vgpu_holders_drop(p, binding.owner);
}

/* Does not look whether descriptors that were given out for it are still open. */
static void drop_one(struct vgpu_process *p, uint64_t key)
{
	struct vgpu_entry *memory;
	struct vgpu_entry gone = {0};
	bool bound;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	memory = vgpu_table_find(&vgpu_memory(p)->vmm_memory, key);
	if (memory != NULL && --memory->count == 0)
		vgpu_table_take(&vgpu_memory(p)->vmm_memory, key, &gone);
	bound = vgpu_memory(p)->vmm_bindings.used != 0;
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	vgpu_account_give_back(p, gone.device, gone.bytes);
	if (bound && gone.key != 0)
		unbind(p, gone.key, ANY_DEVICE, 0, UINT64_MAX);
	if ((gone.owner & VGPU_VMM_OPENED) != 0)
		vgpu_holders_closed(p);
	if ((gone.owner & VGPU_VMM_KEPT) != 0)
		vgpu_holders_closed(p);
}

static void drop_all(struct vgpu_process *p, const struct vgpu_entry *list, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		drop_one(p, list[i].owner);
}

void vgpu_holders_drop_closed(struct vgpu_process *p, uint64_t memory)
{
	struct vgpu_entry list[VGPU_CLOSED_DESCRIPTORS];
	uint32_t count = VGPU_CLOSED_DESCRIPTORS;

	while (count == VGPU_CLOSED_DESCRIPTORS && GET(vgpu_memory(p)->vmm_descriptors.used) != 0) {
		vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
		count = vgpu_descriptors_take_closed(p, memory, list);
		vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
		drop_all(p, list, count);
	}
}

void vgpu_holders_drop(struct vgpu_process *p, uint64_t key)
{
	struct vgpu_entry *memory;
	bool look, kept = false;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	look = vgpu_memory(p)->vmm_descriptors.used != 0 && vgpu_descriptors_count(p, key) != 0;
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	drop_one(p, key);
	if (!look)
		return;
	vgpu_holders_drop_closed(p, key);
	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	memory = vgpu_table_find(&vgpu_memory(p)->vmm_memory, key);
	if (memory != NULL && (memory->owner & VGPU_VMM_KEPT) == 0 &&
	    memory->count == vgpu_descriptors_count(p, key)) {
		memory->owner |= VGPU_VMM_KEPT;
		kept = true;
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	if (kept)
		vgpu_holders_opened(p);
}

uint64_t vgpu_bind_multicast(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	struct vgpu_entry *reference;
	uint64_t object = 0;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	reference = vgpu_table_find(&vgpu_memory(p)->vmm_handles, handle);
	if (reference != NULL)
		object = reference->owner;
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return object;
}

void vgpu_bind_noted(struct vgpu_process *p, uint64_t object, uint64_t offset, uint64_t memory)
{
	struct vgpu_entry binding = {.bytes = offset, .owner = memory, .count = tag_of(object)};
	struct vgpu_entry *held;
	bool noted = false;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	held = vgpu_table_find(&vgpu_memory(p)->vmm_memory, memory);
	if (held != NULL && object != 0) {
		binding.key = ++vgpu_memory(p)->vmm_last;
		binding.device = held->device;
		noted = vgpu_table_put(&vgpu_memory(p)->vmm_bindings, &binding);
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	if (!noted)
		vgpu_holders_drop(p, memory);
}

void vgpu_bind_ended(struct vgpu_process *p, uint64_t object, CUdevice ordinal, uint64_t offset,
		     uint64_t size)
{
	unbind(p, object, vgpu_device_of_ordinal(p, ordinal), offset, size);
}

void vgpu_bind_all_ended(struct vgpu_process *p, uint64_t object)
{
	unbind(p, object, ANY_DEVICE, 0, UINT64_MAX);
}

void vgpu_holders_imported(struct vgpu_process *p, CUmemGenericAllocationHandle handle, const void *shared,
			   int type)
{
	int fd = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? (int)(intptr_t)shared : -1;
	uint64_t key;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	key = vgpu_vmm_memory_of(p, handle);
	if (key == 0 && fd >= 0)
		key = vgpu_descriptors_memory(p, fd);
	key = vgpu_vmm_hold_key(p, key);
	if (key != 0)
		vgpu_vmm_refer(p, handle, key);
	else
		vgpu_vmm_create(p, handle, 0, 0, VGPU_VMM_OPENED);
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	if (key == 0)
		vgpu_holders_opened(p);
}

/* The driver has not given it out. */
static void cancel(struct vgpu_process *p, uint64_t group)
{
	struct vgpu_entry list[VGPU_CLOSED_DESCRIPTORS];
	uint32_t count;

	do {
		vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
		count = vgpu_descriptors_take_group(p, group, list);
		vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
		drop_all(p, list, count);
	} while (count == VGPU_CLOSED_DESCRIPTORS);
}

void vgpu_holders_given_out(struct vgpu_process *p, uint64_t group, int fd)
{
	if (!vgpu_descriptors_given(p, group, fd))
		cancel(p, group);
}

bool vgpu_holders_keep_block(struct vgpu_process *p, CUdeviceptr pointer, uint64_t bytes, uint64_t at_least)
{
	struct vgpu_entry block;
	bool found;
	uint32_t device = 0;

	if (GET(vgpu_memory(p)->exported_blocks.used) == 0)
		return false;
	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	found = vgpu_table_take(&vgpu_memory(p)->exported_blocks, pointer, &block);
	if (found)
		device = vgpu_vmm_charged(p, block.owner, bytes > at_least ? bytes : at_least);
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	if (!found)
		return false;
	/* Other blocks live in the granule, and may leave it before the descriptor is closed. */
	if (at_least > bytes)
		vgpu_account_force(p, device, at_least - bytes);
	vgpu_holders_drop(p, block.owner);
	return true;
}

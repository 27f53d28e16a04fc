/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * p->vmm_bindings, under vmm_mutex: a number of its own → owner: key of the memory, bytes: the offset
 * that it is bound at, device: the memory's, count: of the object. */
#include "memory/bind.h"

#include "base/futex.h"
#include "driver/device.h"
#include "memory/vmm.h"

#define ANY_DEVICE (-3)

static uint32_t tag_of(uint64_t object)
{
	return (uint32_t)(object * 0x9e3779b97f4a7c15ull >> 32);
}

uint64_t vgpu_bind_multicast(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	struct vgpu_entry *reference;
	uint64_t object = 0;

	vgpu_mutex_lock(&p->vmm_mutex);
	reference = vgpu_table_find(&p->vmm_handles, handle);
	if (reference != NULL)
		object = reference->owner;
	vgpu_mutex_unlock(&p->vmm_mutex);
	return object;
}

void vgpu_bind_noted(struct vgpu_process *p, uint64_t object, uint64_t offset, uint64_t memory)
{
	struct vgpu_entry binding = {.bytes = offset, .owner = memory, .count = tag_of(object)};
	struct vgpu_entry *held;
	bool noted = false;

	vgpu_mutex_lock(&p->vmm_mutex);
	held = vgpu_table_find(&p->vmm_memory, memory);
	if (held != NULL && object != 0) {
		binding.key = ++p->vmm_last;
		binding.device = held->device;
		noted = vgpu_table_put(&p->vmm_bindings, &binding);
	}
	vgpu_mutex_unlock(&p->vmm_mutex);
	if (!noted)
		vgpu_vmm_drop(p, memory);
}

static bool take(struct vgpu_process *p, uint32_t tag, int device, uint64_t offset, uint64_t size, struct vgpu_entry *out)
{
	bool found = false;

	vgpu_mutex_lock(&p->vmm_mutex);
	for (uint64_t i = 0; i < p->vmm_bindings.capacity && !found; i++) {
		const struct vgpu_entry *binding = &p->vmm_bindings.entry[i];

		if (binding->key != 0 && binding->count == tag && (device == ANY_DEVICE || (int)binding->device == device) &&
		    binding->bytes >= offset && binding->bytes - offset < size)
			found = vgpu_table_take(&p->vmm_bindings, binding->key, out);
	}
	vgpu_mutex_unlock(&p->vmm_mutex);
	return found;
}

static void end(struct vgpu_process *p, uint64_t object, int device, uint64_t offset, uint64_t size)
{
	struct vgpu_entry binding;

	while (object != 0 && take(p, tag_of(object), device, offset, size, &binding))
		vgpu_vmm_drop(p, binding.owner);
}

void vgpu_bind_ended(struct vgpu_process *p, uint64_t object, CUdevice ordinal, uint64_t offset, uint64_t size)
{
	end(p, object, vgpu_device_of_ordinal(p, ordinal), offset, size);
}

void vgpu_bind_all_ended(struct vgpu_process *p, uint64_t object)
{
	end(p, object, ANY_DEVICE, 0, UINT64_MAX);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "vmm.h"

#include "account.h"
#include "futex.h"
#include "growth.h"
#include "sys.h"
#include "vmm_bind.h"

/* Tables, all under vmm_mutex:
 *   vmm_memory    key → device, bytes, count of holders (handle references and mappings), owner:
 *                 UNSEEN when a handle of it was released, so that NVML may not show it any more;
 *                 OPENED when another process pays for it
 *   vmm_handles   handle → owner: key of its memory, count of references
 *   vmm_exports   1 + file descriptor → owner: key of the memory, bytes: what it is (st_dev and st_ino)
 *   vmm_mappings  address → owner: key of its memory, bytes: size of the mapping */

#define UNSEEN 1u
#define OPENED 2u

uint64_t vgpu_vmm_unseen_bytes(struct vgpu_process *p, uint32_t device)
{
	uint64_t sum = 0;

	vgpu_mutex_lock(&p->vmm_mutex);
	for (uint64_t i = 0; i < p->vmm_memory.capacity; i++) {
		const struct vgpu_entry *memory = &p->vmm_memory.entry[i];

		if (memory->key != 0 && (memory->owner & UNSEEN) != 0 && memory->device == device)
			sum += memory->bytes;
	}
	vgpu_mutex_unlock(&p->vmm_mutex);
	return sum;
}

/* With the mutex held. */
static void create(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint32_t device, uint64_t bytes, uint32_t flags)
{
	struct vgpu_entry memory = {.key = ++p->vmm_last, .bytes = bytes, .owner = flags, .device = device, .count = 1};
	struct vgpu_entry reference = {.key = handle, .owner = memory.key, .count = 1};

	/* Without memory for it the charge stays until the process ends. */
	if (vgpu_table_put(&p->vmm_memory, &memory))
		vgpu_table_put(&p->vmm_handles, &reference);
}

void vgpu_vmm_created(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint32_t device, uint64_t bytes)
{
	vgpu_mutex_lock(&p->vmm_mutex);
	create(p, handle, device, bytes, 0);
	vgpu_mutex_unlock(&p->vmm_mutex);
}

uint64_t vgpu_vmm_release(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	struct vgpu_entry *reference;
	struct vgpu_entry gone;
	uint64_t memory = 0;

	vgpu_mutex_lock(&p->vmm_mutex);
	reference = vgpu_table_find(&p->vmm_handles, handle);
	if (reference != NULL) {
		memory = reference->owner;
		if (--reference->count == 0) {
			struct vgpu_entry *held = vgpu_table_find(&p->vmm_memory, memory);

			if (held != NULL)
				held->owner |= UNSEEN;
			vgpu_table_take(&p->vmm_handles, handle, &gone);
		}
	}
	vgpu_mutex_unlock(&p->vmm_mutex);
	return memory;
}

/* Counts one more reference of the handle. */
static void refer(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint64_t memory)
{
	struct vgpu_entry *reference = vgpu_table_find(&p->vmm_handles, handle);
	struct vgpu_entry first = {.key = handle, .owner = memory, .count = 1};

	if (reference != NULL)
		reference->count++;
	else
		vgpu_table_put(&p->vmm_handles, &first);
}

void vgpu_vmm_unrelease(struct vgpu_process *p, CUmemGenericAllocationHandle handle, uint64_t memory)
{
	vgpu_mutex_lock(&p->vmm_mutex);
	refer(p, handle, memory);
	vgpu_mutex_unlock(&p->vmm_mutex);
}

/* One more holder of the memory; its key, or 0 when it is gone. With the mutex held, like what follows. */
static uint64_t hold(struct vgpu_process *p, uint64_t key)
{
	struct vgpu_entry *memory = key != 0 ? vgpu_table_find(&p->vmm_memory, key) : NULL;

	if (memory == NULL)
		return 0;
	memory->count++;
	return key;
}

static uint64_t memory_of(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	struct vgpu_entry *reference = vgpu_table_find(&p->vmm_handles, handle);

	return reference != NULL ? reference->owner : 0;
}

static uint64_t memory_at(struct vgpu_process *p, CUdeviceptr address)
{
	struct vgpu_entry *found = vgpu_table_find(&p->vmm_mappings, address);
	uint64_t key = found != NULL ? found->owner : 0;

	for (uint64_t i = 0; key == 0 && i < p->vmm_mappings.capacity; i++) {
		struct vgpu_entry *mapping = &p->vmm_mappings.entry[i];

		if (mapping->key != 0 && address >= mapping->key && address - mapping->key < mapping->bytes)
			key = mapping->owner;
	}
	return key;
}

uint64_t vgpu_vmm_hold(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	uint64_t key;

	vgpu_mutex_lock(&p->vmm_mutex);
	key = hold(p, memory_of(p, handle));
	vgpu_mutex_unlock(&p->vmm_mutex);
	return key;
}

uint64_t vgpu_vmm_hold_at(struct vgpu_process *p, CUdeviceptr address)
{
	uint64_t key;

	vgpu_mutex_lock(&p->vmm_mutex);
	key = hold(p, memory_at(p, address));
	vgpu_mutex_unlock(&p->vmm_mutex);
	return key;
}

void vgpu_vmm_mapped(struct vgpu_process *p, CUdeviceptr pointer, uint64_t size, uint64_t memory)
{
	struct vgpu_entry mapping = {.key = pointer, .bytes = size, .owner = memory, .count = 1};

	vgpu_mutex_lock(&p->vmm_mutex);
	vgpu_table_put(&p->vmm_mappings, &mapping);
	vgpu_mutex_unlock(&p->vmm_mutex);
}

uint32_t vgpu_vmm_unmap(struct vgpu_process *p, CUdeviceptr pointer, uint64_t size, struct vgpu_entry *list,
			uint32_t room)
{
	CUdeviceptr at = pointer;
	uint32_t count = 0;

	vgpu_mutex_lock(&p->vmm_mutex);
	/* Mappings that follow each other, as a rule just one. */
	while (count < room && at - pointer < size && vgpu_table_take(&p->vmm_mappings, at, &list[count]))
		at += list[count++].bytes;
	/* One of them is not ours (memory of the host, say): look at all. */
	for (uint64_t i = 0; count < room && at - pointer < size && i < p->vmm_mappings.capacity;) {
		uint64_t key = p->vmm_mappings.entry[i].key;

		if (key != 0 && key - pointer < size && key >= pointer)
			count += vgpu_table_take(&p->vmm_mappings, key, &list[count]);
		else
			i++;
	}
	vgpu_mutex_unlock(&p->vmm_mutex);
	return count;
}

void vgpu_vmm_retained(struct vgpu_process *p, CUmemGenericAllocationHandle handle, CUdeviceptr address)
{
	uint64_t key;

	vgpu_mutex_lock(&p->vmm_mutex);
	key = memory_of(p, handle);
	key = hold(p, key != 0 ? key : memory_at(p, address));
	if (key != 0)
		refer(p, handle, key);
	vgpu_mutex_unlock(&p->vmm_mutex);
}

/* What a descriptor refers to. A number that was closed and opened again differs, as a rule; where
 * it does not, memory of another process is taken for this one's, and charged for too long. */
static uint64_t file_of(int fd)
{
	struct stat st;

	return vgpu_fstat(fd, &st) == 0 ? (uint64_t)st.st_ino * 31 + (uint64_t)st.st_dev : 0;
}

/* A duplicate, or one that was sent to this process itself. */
static bool same_file(const struct vgpu_process *p, int a, int b)
{
	return syscall(SYS_kcmp, p->pid, p->pid, 0 /* KCMP_FILE */, a, b) == 0;
}

void vgpu_vmm_exported(struct vgpu_process *p, CUmemGenericAllocationHandle handle, const void *shared, int type)
{
	int fd = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? *(const int *)shared : -1;
	struct vgpu_entry given = {.key = (uint64_t)fd + 1, .bytes = file_of(fd), .count = 1};
	struct vgpu_entry old;

	if (fd < 0)
		return;
	vgpu_mutex_lock(&p->vmm_mutex);
	vgpu_table_take(&p->vmm_exports, given.key, &old);
	given.owner = memory_of(p, handle);
	if (given.owner != 0)
		vgpu_table_put(&p->vmm_exports, &given);
	vgpu_mutex_unlock(&p->vmm_mutex);
}

void vgpu_vmm_imported(struct vgpu_process *p, CUmemGenericAllocationHandle handle, const void *shared, int type)
{
	int fd = type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ? (int)(intptr_t)shared : -1;
	uint64_t file = fd >= 0 ? file_of(fd) : 0;
	struct vgpu_entry *found;
	uint64_t key = 0;

	vgpu_mutex_lock(&p->vmm_mutex);
	found = vgpu_table_find(&p->vmm_handles, handle);
	if (found == NULL && fd >= 0) {
		found = vgpu_table_find(&p->vmm_exports, (uint64_t)fd + 1);
		if (found != NULL && found->bytes != file)
			found = NULL;
		for (uint64_t i = 0; found == NULL && i < p->vmm_exports.capacity; i++) {
			struct vgpu_entry *given = &p->vmm_exports.entry[i];

			if (given->key != 0 && given->bytes == file && same_file(p, (int)given->key - 1, fd))
				found = given;
		}
	}
	if (found != NULL)
		key = hold(p, found->owner);
	if (key != 0)
		refer(p, handle, key);
	else
		create(p, handle, 0, 0, OPENED);
	vgpu_mutex_unlock(&p->vmm_mutex);
	if (key == 0)
		vgpu_growth_opened(p);
}

void vgpu_vmm_drop(struct vgpu_process *p, uint64_t key)
{
	struct vgpu_entry *memory;
	struct vgpu_entry gone = {0};
	bool bound;

	vgpu_mutex_lock(&p->vmm_mutex);
	memory = vgpu_table_find(&p->vmm_memory, key);
	if (memory != NULL && --memory->count == 0)
		vgpu_table_take(&p->vmm_memory, key, &gone);
	bound = p->vmm_bindings.used != 0;
	vgpu_mutex_unlock(&p->vmm_mutex);
	vgpu_account_give_back(p, gone.device, gone.bytes);
	if (bound && gone.key != 0)
		vgpu_bind_all_ended(p, gone.key);
	if ((gone.owner & OPENED) != 0)
		vgpu_growth_closed(p);
}

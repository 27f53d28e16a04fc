/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory/descriptors.h"

#include "base/atomics.h"
#include "base/futex.h"
#include "base/number.h"
#include "base/sys.h"
#include "base/table.h"
#include "memory/own.h"
#include "memory/vmm.h"
#include "tuning.h"

#include <stddef.h>

/* Tables, both under vmm_mutex:
 *   vmm_descriptors  a number → owner: key of the memory that it holds, device: the descriptor, bytes: what
 *                    that is (file_of), count: how many others there were of it that are none of these; while
 *                    the driver is asked, bytes: what vgpu_descriptors_begin returned
 *   exported_blocks  address of a block → owner: key of its memory, of no bytes while the block is charged
 * Whether there are any blocks is read without it. */

#define NOT_YET UINT32_MAX	/* the driver has not given it out */
#define NO_NUMBER (UINT32_MAX - 1) /* its number is another one's by now */

/* The file behind a descriptor, 0 when it is closed. All of NVIDIA's device file have the same. */
static uint64_t file_of(int fd)
{
	struct stat st;

	return vgpu_fstat(fd, &st) == 0 ? (uint64_t)st.st_ino * 31 + (uint64_t)st.st_dev : 0;
}

/* A duplicate, or one that was sent to this process itself. */
static bool same_file(const struct vgpu_process *p, uint32_t a, int b)
{
	return syscall(SYS_kcmp, p->pid, p->pid, 0 /* KCMP_FILE */, a, b) == 0;
}

static bool is_known_descriptor(const struct vgpu_process *p, uint32_t fd, uint64_t file)
{
	for (uint64_t i = 0; i < vgpu_memory(p)->vmm_descriptors.capacity; i++) {
		const struct vgpu_entry *given = &vgpu_memory(p)->vmm_descriptors.entry[i];

		if (given->key != 0 && given->device == fd && given->bytes == file)
			return true;
	}
	return false;
}

struct directory_entry { /* as from getdents64 */
	uint64_t inode;
	int64_t next;
	unsigned short size;
	unsigned char type;
	char name[];
};

/* Descriptors of the file that are none of those given out. */
static uint32_t count_others(const struct vgpu_process *p, uint64_t file)
{
	int folder = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint32_t count = 0;
	_Alignas(8) char list[4096];
	long got;

	if (folder < 0)
		return 0;
	while ((got = syscall(SYS_getdents64, folder, list, sizeof(list))) > 0) {
		for (long at = 0; at < got;) {
			const struct directory_entry *entry = (const void *)(list + at);
			const char *name = entry->name;
			uint64_t fd;

			at += entry->size;
			if (vgpu_number_read(&name, &fd) && file_of((int)fd) == file &&
			    !is_known_descriptor(p, (uint32_t)fd, file))
				count++;
		}
	}
	syscall(SYS_close, folder);
	return count;
}

static bool is_open(const struct vgpu_process *p, const struct vgpu_entry *given)
{
	return given->device == NOT_YET ||
	       (given->device != NO_NUMBER && file_of((int)given->device) == given->bytes) ||
	       count_others(p, given->bytes) > given->count;
}

static void hold_memory(struct vgpu_process *p, uint64_t memory, uint64_t group)
{
	struct vgpu_entry given = {.key = ++vgpu_memory(p)->vmm_last,
				   .owner = vgpu_vmm_hold_key(p, memory),
				   .bytes = group,
				   .device = NOT_YET};

	/* Without memory for it the charge stays until the process ends. */
	if (given.owner != 0)
		vgpu_table_put(&vgpu_memory(p)->vmm_descriptors, &given);
}

uint64_t vgpu_descriptors_begin(struct vgpu_process *p, CUmemGenericAllocationHandle handle)
{
	uint64_t group;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	group = ++vgpu_memory(p)->vmm_last;
	hold_memory(p, vgpu_vmm_memory_of(p, handle), group);
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return group;
}

/* The memory of a block that was allocated by pointer. */
static uint64_t memory_of_block(struct vgpu_process *p, CUdeviceptr base, uint32_t device)
{
	struct vgpu_entry *known = vgpu_table_find(&vgpu_memory(p)->exported_blocks, base);
	struct vgpu_entry block = {.key = base, .count = 1};

	if (known != NULL)
		return known->owner;
	block.owner = vgpu_vmm_new_key(p, device);
	return block.owner != 0 && vgpu_table_put(&vgpu_memory(p)->exported_blocks, &block) ? block.owner : 0;
}

uint64_t vgpu_descriptors_begin_range(struct vgpu_process *p, CUdeviceptr address, uint64_t size,
				      CUdeviceptr block, uint32_t device)
{
	uint64_t group;

	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	group = ++vgpu_memory(p)->vmm_last;
	if (block != 0)
		hold_memory(p, memory_of_block(p, block, device), group);
	for (uint64_t i = 0; i < vgpu_memory(p)->vmm_mappings.capacity; i++) {
		const struct vgpu_entry *mapping = &vgpu_memory(p)->vmm_mappings.entry[i];

		if (mapping->key != 0 && mapping->key - address < size)
			hold_memory(p, mapping->owner, group);
		else if (mapping->key != 0 && address - mapping->key < mapping->bytes)
			hold_memory(p, mapping->owner, group);
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return group;
}

uint32_t vgpu_descriptors_take_group(struct vgpu_process *p, uint64_t group, struct vgpu_entry *list)
{
	uint32_t count = 0;

	for (uint64_t i = 0;
	     i < vgpu_memory(p)->vmm_descriptors.capacity && count < VGPU_CLOSED_DESCRIPTORS;) {
		const struct vgpu_entry *given = &vgpu_memory(p)->vmm_descriptors.entry[i];

		if (given->key != 0 && given->device == NOT_YET && given->bytes == group)
			count += vgpu_table_take(&vgpu_memory(p)->vmm_descriptors, given->key, &list[count]);
		else
			i++;
	}
	return count;
}

uint32_t vgpu_descriptors_take_closed(struct vgpu_process *p, uint64_t memory, struct vgpu_entry *list)
{
	uint32_t count = 0;

	for (uint64_t i = 0;
	     i < vgpu_memory(p)->vmm_descriptors.capacity && count < VGPU_CLOSED_DESCRIPTORS;) {
		const struct vgpu_entry *given = &vgpu_memory(p)->vmm_descriptors.entry[i];

		if (given->key != 0 && (memory == 0 || given->owner == memory) && !is_open(p, given))
			count += vgpu_table_take(&vgpu_memory(p)->vmm_descriptors, given->key, &list[count]);
		else
			i++;
	}
	return count;
}

bool vgpu_descriptors_given(struct vgpu_process *p, uint64_t group, int fd)
{
	uint64_t file = fd >= 0 ? file_of(fd) : 0;
	uint32_t others;

	if (file == 0)
		return false;
	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	for (uint64_t i = 0; i < vgpu_memory(p)->vmm_descriptors.capacity; i++) {
		if (vgpu_memory(p)->vmm_descriptors.entry[i].key != 0 &&
		    vgpu_memory(p)->vmm_descriptors.entry[i].device == (uint32_t)fd)
			vgpu_memory(p)->vmm_descriptors.entry[i].device = NO_NUMBER;
	}
	others = count_others(p, file) - 1; /* itself */
	for (uint64_t i = 0; i < vgpu_memory(p)->vmm_descriptors.capacity; i++) {
		struct vgpu_entry *given = &vgpu_memory(p)->vmm_descriptors.entry[i];

		if (given->key != 0 && given->device == NOT_YET && given->bytes == group) {
			given->device = (uint32_t)fd;
			given->bytes = file;
			given->count = others;
		}
	}
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return true;
}

uint64_t vgpu_descriptors_memory(struct vgpu_process *p, int fd)
{
	uint64_t file = file_of(fd);

	for (uint64_t i = 0; file != 0 && i < vgpu_memory(p)->vmm_descriptors.capacity; i++) {
		const struct vgpu_entry *given = &vgpu_memory(p)->vmm_descriptors.entry[i];

		if (given->key == 0 || given->device == NOT_YET || given->bytes != file)
			continue;
		/* A file that no other descriptor had is known by itself. */
		if (given->count == 0 || given->device == (uint32_t)fd ||
		    (given->device != NO_NUMBER && same_file(p, given->device, fd)))
			return given->owner;
	}
	return 0;
}

uint32_t vgpu_descriptors_count(const struct vgpu_process *p, uint64_t memory)
{
	uint32_t count = 0;

	for (uint64_t i = 0; i < vgpu_memory(p)->vmm_descriptors.capacity; i++)
		count += vgpu_memory(p)->vmm_descriptors.entry[i].key != 0 &&
			 vgpu_memory(p)->vmm_descriptors.entry[i].owner == memory;
	return count;
}

bool vgpu_descriptors_has_block(struct vgpu_process *p, CUdeviceptr pointer)
{
	bool found;

	if (GET(vgpu_memory(p)->exported_blocks.used) == 0)
		return false;
	vgpu_mutex_lock(&vgpu_memory(p)->vmm_mutex, VGPU_RANK_HANDLES);
	found = vgpu_table_find(&vgpu_memory(p)->exported_blocks, pointer) != NULL;
	vgpu_mutex_unlock(&vgpu_memory(p)->vmm_mutex);
	return found;
}

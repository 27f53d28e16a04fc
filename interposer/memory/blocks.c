/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "memory/blocks.h"

#include "account/account.h"
#include "base/futex.h"
#include "base/table.h"
#include "memory/charge.h"
#include "memory/descriptors.h"
#include "memory/granules.h"
#include "memory/holders.h"
#include "memory/own.h"
#include "tuning.h"

/* Allocations are 512 bytes apart at least, most of them 2 MiB. */
static uint32_t cell_of(uint64_t pointer)
{
	return (uint32_t)((pointer >> 9) * 0x9e3779b97f4a7c15ull >> (64 - VGPU_BLOCK_CELL_BITS));
}

static struct vgpu_stripe *block_stripe(struct vgpu_process *p, uint64_t pointer)
{
	return &vgpu_memory(p)->blocks[cell_of(pointer) % VGPU_BLOCK_STRIPES];
}

/* With the stripe's mutex held: counts how many blocks are in the cell. One that was full once stays so. */
static void note_cell(struct vgpu_process *p, uint64_t pointer, bool comes)
{
	uint16_t *there = &vgpu_memory(p)->blocks_there[cell_of(pointer)];
	uint16_t count = __atomic_load_n(there, __ATOMIC_RELAXED);

	if (count != UINT16_MAX)
		__atomic_store_n(there, (uint16_t)(comes ? count + 1 : count - 1), __ATOMIC_RELAXED);
}

static bool is_small(const struct vgpu_entry *block)
{
	return block->count == VGPU_BLOCK_SMALL;
}

/* The bytes by which the charge falls without the block. */
static uint64_t charge_of(struct vgpu_process *p, const struct vgpu_entry *block)
{
	return is_small(block) ? vgpu_granules_leave(p, block->key, block->bytes) : block->bytes;
}

static void count_in(struct vgpu_process *p, const struct vgpu_entry *block)
{
	if (block->count == VGPU_BLOCK_MANAGED)
		__atomic_add_fetch(&vgpu_memory(p)->managed_bytes[block->device], block->bytes,
				   __ATOMIC_RELAXED);
}

static void count_out(struct vgpu_process *p, const struct vgpu_entry *block)
{
	if (block->count == VGPU_BLOCK_MANAGED)
		__atomic_sub_fetch(&vgpu_memory(p)->managed_bytes[block->device], block->bytes,
				   __ATOMIC_RELAXED);
}

void vgpu_blocks_ended(struct vgpu_process *p, const struct vgpu_entry *block)
{
	uint64_t bytes = charge_of(p, block);
	uint64_t at_least = is_small(block) ? vgpu_charge_granules(block->bytes) : 0;

	if (!vgpu_holders_keep_block(p, block->key, bytes, at_least))
		vgpu_account_give_back(p, block->device, bytes);
}

void vgpu_blocks_put_back(struct vgpu_process *p, const struct vgpu_entry *block)
{
	struct vgpu_stripe *stripe = block_stripe(p, block->key);
	struct vgpu_entry *same;
	struct vgpu_entry old = {0};

	vgpu_mutex_lock(&stripe->mutex, VGPU_RANK_BLOCKS);
	same = vgpu_table_find(&stripe->entries, block->key);
	if (same != NULL)
		old = *same;
	/* Without memory for it the charge stays until the process ends: too much, never too little. */
	if (vgpu_table_put(&stripe->entries, block) && same == NULL)
		note_cell(p, block->key, true);
	count_in(p, block);
	count_out(p, &old);
	vgpu_mutex_unlock(&stripe->mutex);
	/* The driver gave the address again, so it has freed the old block in a way not seen here. */
	if (old.key != 0)
		vgpu_blocks_ended(p, &old);
}

uint64_t vgpu_blocks_managed_bytes(const struct vgpu_process *p, uint32_t device)
{
	return __atomic_load_n(&vgpu_memory(p)->managed_bytes[device], __ATOMIC_RELAXED);
}

void vgpu_blocks_put(struct vgpu_process *p, CUdeviceptr pointer, uint32_t device, uint64_t bytes,
		     CUcontext context, uint32_t kind)
{
	struct vgpu_entry block = {.key = pointer,
				   .bytes = bytes,
				   .owner = (uint64_t)(uintptr_t)context,
				   .device = device,
				   .count = kind};

	vgpu_blocks_put_back(p, &block);
}

bool vgpu_blocks_take(struct vgpu_process *p, CUdeviceptr pointer, struct vgpu_entry *out)
{
	struct vgpu_stripe *stripe = block_stripe(p, pointer);
	bool found;

	/* Most of what is freed in stream order is not noted. Who frees a block has learned its address
	 * from whoever noted it, and so sees that there is one. */
	if (__atomic_load_n(&vgpu_memory(p)->blocks_there[cell_of(pointer)], __ATOMIC_RELAXED) == 0)
		return false;
	vgpu_mutex_lock(&stripe->mutex, VGPU_RANK_BLOCKS);
	found = vgpu_table_take(&stripe->entries, pointer, out);
	if (found) {
		note_cell(p, pointer, false);
		count_out(p, out);
	}
	vgpu_mutex_unlock(&stripe->mutex);
	return found;
}

bool vgpu_blocks_device(struct vgpu_process *p, CUdeviceptr pointer, uint32_t *device)
{
	struct vgpu_stripe *stripe = block_stripe(p, pointer);
	const struct vgpu_entry *block;
	bool found;

	vgpu_mutex_lock(&stripe->mutex, VGPU_RANK_BLOCKS);
	block = vgpu_table_find(&stripe->entries, pointer);
	found = block != NULL && block->count != VGPU_BLOCK_OF_POOL;
	if (found)
		*device = block->device;
	vgpu_mutex_unlock(&stripe->mutex);
	return found;
}

void vgpu_blocks_drop_context(struct vgpu_process *p, CUcontext context)
{
	uint64_t bytes[VGPU_MAX_DEVICES] = {0};

	for (uint32_t s = 0; s < VGPU_BLOCK_STRIPES; s++) {
		struct vgpu_table *blocks = &vgpu_memory(p)->blocks[s].entries;

		vgpu_mutex_lock(&vgpu_memory(p)->blocks[s].mutex, VGPU_RANK_BLOCKS);
		for (uint64_t i = 0; i < blocks->capacity;) {
			struct vgpu_entry block = blocks->entry[i];

			/* Taking one may move another one here. */
			if (block.key != 0 && block.owner == (uint64_t)(uintptr_t)context &&
			    vgpu_table_take(blocks, block.key, &block)) {
				note_cell(p, block.key, false);
				count_out(p, &block);
				if (vgpu_descriptors_has_block(p, block.key)) {
					vgpu_mutex_unlock(&vgpu_memory(p)->blocks[s].mutex);
					vgpu_blocks_ended(p, &block);
					vgpu_mutex_lock(&vgpu_memory(p)->blocks[s].mutex, VGPU_RANK_BLOCKS);
					i = 0;
					continue;
				}
				bytes[block.device] += charge_of(p, &block);
			} else {
				i++;
			}
		}
		vgpu_mutex_unlock(&vgpu_memory(p)->blocks[s].mutex);
	}
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES; d++)
		vgpu_account_give_back(p, d, bytes[d]);
}

void vgpu_blocks_change_context(struct vgpu_process *p, CUcontext from, CUcontext to)
{
	for (uint32_t s = 0; s < VGPU_BLOCK_STRIPES; s++) {
		struct vgpu_table *blocks = &vgpu_memory(p)->blocks[s].entries;

		vgpu_mutex_lock(&vgpu_memory(p)->blocks[s].mutex, VGPU_RANK_BLOCKS);
		for (uint64_t i = 0; i < blocks->capacity; i++) {
			if (blocks->entry[i].key != 0 && blocks->entry[i].owner == (uint64_t)(uintptr_t)from)
				blocks->entry[i].owner = (uint64_t)(uintptr_t)to;
		}
		vgpu_mutex_unlock(&vgpu_memory(p)->blocks[s].mutex);
	}
}

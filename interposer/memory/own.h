/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h). */
#ifndef VGPU_MEMORY_OWN_H
#define VGPU_MEMORY_OWN_H

#include "base/table.h"
#include "process/process.h"
#include "tuning.h"

#define VGPU_BLOCK_CELLS (1u << VGPU_BLOCK_CELL_BITS)

struct vgpu_stripe {
	uint32_t mutex;
	struct vgpu_table entries;
} __attribute__((aligned(64)));

struct vgpu_memory {
	/* memory/blocks.c and memory/granules.c. A cell is read without the mutex that it changes under. */
	struct vgpu_stripe blocks[VGPU_BLOCK_STRIPES];
	uint16_t blocks_there[VGPU_BLOCK_CELLS]; /* how many, by a hash of their address */
	struct vgpu_stripe granules[VGPU_BLOCK_STRIPES];
	uint64_t managed_bytes[VGPU_MAX_DEVICES]; /* what of them is charged for managed memory */
	uint32_t closed; /* of what was opened, ever (memory/holders.h) */

	uint32_t vmm_mutex; /* for all below */
	uint64_t vmm_last; /* the last key in vmm_memory */
	struct vgpu_table vmm_memory;
	struct vgpu_table vmm_handles;
	struct vgpu_table vmm_mappings;

	/* Memory given out as file descriptors and the blocks of it (memory/descriptors.c), what is bound to
	 * multicast objects, and what cuMemMapArrayAsync has mapped: under vmm_mutex as well. Whether there
	 * are any is read without it. */
	struct vgpu_table vmm_descriptors;
	struct vgpu_table exported_blocks;
	struct vgpu_table vmm_bindings;
	struct vgpu_table array_maps;
};
_Static_assert(sizeof(struct vgpu_memory) <= VGPU_POOLS_AT - VGPU_MEMORY_AT, "it has room");

static inline struct vgpu_memory *vgpu_memory(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_MEMORY_AT);
}

#endif

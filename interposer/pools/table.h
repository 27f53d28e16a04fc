/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which pools there are, and their ends; what one of them is charged stands in pools/pools.h. */
#ifndef VGPU_POOLS_TABLE_H
#define VGPU_POOLS_TABLE_H

#include "base/table.h"
#include "pools/own.h"
#include "tuning.h"

/* Of a word of chosen_pool. */
#define VGPU_CHOSEN_MASK 255u
_Static_assert(VGPU_KNOWN_POOLS < VGPU_CHOSEN_MASK, "a pool's index fits below the count");

/* The pool of that handle; the device's own default pool is made known by this. NULL when there is
 * no place for it, or when it was not seen to be made. */
struct vgpu_pool *vgpu_pools_find(struct vgpu_process *p, CUmemoryPool handle);
/* The one that the device's streams allocate from; and that may have changed, on every device. */
struct vgpu_pool *vgpu_pools_choose(struct vgpu_process *p, CUdevice ordinal);
static inline struct vgpu_pool *vgpu_pools_chosen(struct vgpu_process *p, CUdevice ordinal)
{
	bool cached = ordinal >= 0 && ordinal < VGPU_CACHED_DEVICES;
	uint64_t known = cached ? __atomic_load_n(&vgpu_pools(p)->chosen_pool[ordinal], __ATOMIC_ACQUIRE) &
					  VGPU_CHOSEN_MASK
				: 0;

	return known != 0 ? &vgpu_pools(p)->pool[known - 1] : vgpu_pools_choose(p, ordinal);
}
void vgpu_pools_chosen_anew(struct vgpu_process *p);
/* The program has set an attribute of a pool. */
void vgpu_pools_set(struct vgpu_process *p, CUmemoryPool handle, int attribute, const void *value);
/* The memory that the driver keeps for the graphs of a device. */
struct vgpu_pool *vgpu_pools_of_graphs(struct vgpu_process *p, CUdevice ordinal);
/* The program has made a pool; or the driver has shown it one of its own. One of managed memory is not
 * known hereafter: what is taken from it may lie anywhere, and is charged by the block. */
void vgpu_pools_made(struct vgpu_process *p, CUmemoryPool handle, const CUmemPoolProps *props);
void vgpu_pools_seen(struct vgpu_process *p, CUmemoryPool handle, const CUmemLocation *location, int type);
/* The program destroys a pool: takes the handle out of the table before the driver frees it. NULL
 * when it is not there. Then says whether the driver did it. */
struct vgpu_pool *vgpu_pools_destroy(struct vgpu_process *p, CUmemoryPool handle);
void vgpu_pools_destroyed(struct vgpu_process *p, struct vgpu_pool *pool, CUmemoryPool handle, bool gone);

/* Blocks of own pools are noted, because such a pool cannot be asked any more once it is destroyed. */
void vgpu_pools_block(struct vgpu_process *p, struct vgpu_pool *pool, CUdeviceptr pointer);
void vgpu_pools_block_freed(struct vgpu_process *p, const struct vgpu_entry *block);

/* The program has trimmed the pool. */
void vgpu_pools_trimmed(struct vgpu_process *p, CUmemoryPool handle);
/* Asks the driver what all pools hold now; the second one after a synchronisation, which takes from a pool
 * only what exceeds its threshold. */
void vgpu_pools_settle_all(struct vgpu_process *p);
void vgpu_pools_synchronised(struct vgpu_process *p);
/* Gives the device back what its pools hold unused. */
void vgpu_pools_reclaim(struct vgpu_process *p, int device);

#endif

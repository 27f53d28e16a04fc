/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Stream-ordered pools, and the memory that the driver keeps for graphs, are charged by what they
 * hold (account/reserve.h). For a call that may make a pool grow the most that it can take, whole chunks, is
 * reserved beforehand, or charged where a graph may take it. Afterwards the driver is asked what the pool
 * holds now, and the account is put right. Freeing changes nothing until the driver takes memory from the
 * pool, which is seen at the next allocation or synchronisation. */
#ifndef VGPU_POOLS_POOLS_H
#define VGPU_POOLS_POOLS_H

#include "account/reserve.h"
#include "base/table.h"
#include "pools/own.h"
#include "process/process.h"

/* What a pool reserves at once (measured on an H200, driver 580). */
#define VGPU_POOL_CHUNK_BYTES (32ull << 20)

/* Of a word of chosen_pool. */
#define VGPU_CHOSEN_MASK 255u
_Static_assert(VGPU_MAX_POOLS < VGPU_CHOSEN_MASK, "a pool's index fits below the count");

/* One call that may make a pool grow, between its begin and its end. */
struct vgpu_growth {
	struct vgpu_pool *pool;
	struct vgpu_flight flight;
	uint64_t trimmed; /* of a graph: graphs_trimmed at the beginning */
};

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
/* What the driver keeps for the graphs of a device. */
struct vgpu_pool *vgpu_pools_of_graphs(struct vgpu_process *p, CUdevice ordinal);
/* The program has made a pool; or was told of one that the driver has made. One of managed memory is not
 * known hereafter: what is taken from it may lie anywhere, and is charged by the block. */
void vgpu_pools_made(struct vgpu_process *p, CUmemoryPool handle, const CUmemPoolProps *props);
void vgpu_pools_told(struct vgpu_process *p, CUmemoryPool handle, const CUmemLocation *location, int type);
/* The program destroys a pool: takes the handle out of the table before the driver frees it. NULL
 * when it is not there. Then says whether the driver did it. */
struct vgpu_pool *vgpu_pools_destroy(struct vgpu_process *p, CUmemoryPool handle);
void vgpu_pools_destroyed(struct vgpu_process *p, struct vgpu_pool *pool, CUmemoryPool handle, bool gone);

/* Blocks of own pools are noted, because such a pool cannot be asked any more once it is destroyed. */
void vgpu_pools_block(struct vgpu_process *p, struct vgpu_pool *pool, CUdeviceptr pointer);
void vgpu_pools_block_freed(struct vgpu_process *p, const struct vgpu_entry *block);

/* Reserves or charges the growth. False when the limit leaves too little, also after what the stream frees
 * has been waited for, a while, and what the process does not use has been given back. */
bool vgpu_pools_begin(struct vgpu_process *p, struct vgpu_growth *g, struct vgpu_pool *pool, uint64_t growth,
		      CUstream stream);
/* The driver is known to have the memory already: charges nothing. */
void vgpu_pools_begin_again(struct vgpu_process *p, struct vgpu_growth *g, struct vgpu_pool *pool,
			    uint64_t growth);
/* It is not after all. */
void vgpu_pools_cancel_again(struct vgpu_process *p, struct vgpu_growth *g);
/* False when the pool has grown by more than was foreseen and than the limit leaves: the caller
 * undoes the call, and calls vgpu_pools_force. */
bool vgpu_pools_end(struct vgpu_process *p, struct vgpu_growth *g);
void vgpu_pools_force(struct vgpu_process *p, struct vgpu_pool *pool);

/* Asks the driver what one pool, or all of them, hold now. */
void vgpu_pools_settle(struct vgpu_process *p, struct vgpu_pool *pool);
void vgpu_pools_settle_all(struct vgpu_process *p);
/* The program has trimmed the pool. */
void vgpu_pools_trimmed(struct vgpu_process *p, CUmemoryPool handle);
/* The same after a synchronisation, which takes from a pool only what exceeds its threshold. */
void vgpu_pools_synchronised(struct vgpu_process *p);
/* Gives the device back what its pools hold unused. */
void vgpu_pools_reclaim(struct vgpu_process *p, int device);

#endif

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
#include "pools/own.h"
#include "process/process.h"

/* One call that may make a pool grow, between its begin and its end. */
struct vgpu_growth {
	struct vgpu_pool *pool;
	struct vgpu_flight flight;
	uint64_t trimmed; /* of a graph: graphs_trimmed at the beginning */
};

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

/* Asks the driver what the pool holds now. */
void vgpu_pools_settle(struct vgpu_process *p, struct vgpu_pool *pool);

#endif

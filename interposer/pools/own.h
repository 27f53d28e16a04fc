/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this room keeps for the process (process/process.h). */
#ifndef VGPU_POOLS_OWN_H
#define VGPU_POOLS_OWN_H

#include "account/reserve.h"
#include "base/table.h"
#include "driver/own.h"
#include "process/process.h"
#include "tuning.h"

enum vgpu_pool_state {
	VGPU_POOL_UNUSED = 0,
	VGPU_POOL_LIVE,
	VGPU_POOL_GRAPHS, /* what the driver keeps for the graphs of one device */
	VGPU_POOL_DEAD,	  /* destroyed by the program; some of its blocks may live */
};

/* One stream-ordered pool; see pools/pools.h. */
struct vgpu_pool {
	CUmemoryPool handle;
	uint32_t state;
	uint32_t users; /* threads that ask the driver about it and were not given it by the program */
	CUdevice ordinal;
	int32_t device; /* as from vgpu_device_of_ordinal; VGPU_NO_DEVICE: memory that is not counted */
	bool own;	/* made by the program, so that it may be destroyed */
	uint64_t threshold_bytes; /* what synchronisations leave in it */
	uint64_t live; /* blocks of an own pool */
	struct vgpu_tally tally;
} __attribute__((aligned(64)));

struct vgpu_pools {
	/* CUDA ordinal → 1 + index in pool of the one that its streams allocate from, 0 not asked yet; in the
	 * bits above 8: how often that may have changed. */
	uint64_t chosen_pool[VGPU_CACHED_DEVICES];
	uint32_t pools_mutex; /* for taking a place in the table and leaving it: state and live */
	struct vgpu_pool pool[VGPU_KNOWN_POOLS];

	uint32_t graphs_mutex;
	uint64_t graphs_trimmed;     /* how often graph memory may have gone back to the device */
	struct vgpu_table graphs;
};
_Static_assert(sizeof(struct vgpu_pools) <= VGPU_CHANNELS_AT - VGPU_POOLS_AT, "it has room");

static inline struct vgpu_pools *vgpu_pools(const struct vgpu_process *p)
{
	return vgpu_own(p, VGPU_POOLS_AT);
}

#endif

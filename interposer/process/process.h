/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What one process keeps: whether it has found its limits, its slot in the ledger, and what it has
 * allocated. All of it lies in one piece of memory that a forked child sees as zeros, so that the
 * child starts anew and never gives back what its parent holds. A vfork or CLONE_VM child shares
 * the memory and so, rightly, the account. */
#ifndef VGPU_PROCESS_PROCESS_H
#define VGPU_PROCESS_PROCESS_H

#include "api/cuda_types.h"
#include "api/layout.h"
#include "base/table.h"
#include "process/engine.h"

#include <stdbool.h>
#include <stddef.h>

#define VGPU_SHARDS 16
#define VGPU_BLOCK_CELL_BITS 14
#define VGPU_BLOCK_CELLS (1u << VGPU_BLOCK_CELL_BITS)
#define VGPU_CACHED_DEVICES 64
#define VGPU_MAX_CONTEXTS 64
#define VGPU_MAX_POOLS 128

enum vgpu_stage {
	VGPU_NEW = 0,
	VGPU_BUSY,	/* some thread is attaching */
	VGPU_ATTACHED,
	VGPU_REFUSED,	/* no limits that can be believed: CUDA is not permitted */
	VGPU_UNLIMITED, /* no ledger that can be used, and the limits page lets the program run */
};

struct vgpu_shard {
	uint32_t mutex;
	struct vgpu_table entries;
} __attribute__((aligned(64)));

struct vgpu_context {
	CUcontext handle; /* NULL: this entry is free */
	CUdevice ordinal;
	uint32_t device; /* index in vgpu_limits.device */
	bool primary;
	uint64_t promised_bytes; /* see struct vgpu_overhead */
};

/* What the driver uses on a device for itself: contexts, modules, stacks and heaps of kernels. */
struct vgpu_overhead {
	uint64_t bytes;		   /* charged */
	uint64_t promised_bytes;   /* of these: heaps that the driver may not have made yet */
	uint64_t coming_bytes;	   /* and contexts that are being made */
	uint32_t contexts_coming;
	uint64_t measured_bytes;   /* what the driver had taken when it was asked last; UINT64_MAX: it did not say */
	uint64_t read_ns;	   /* when the driver was asked last */
	uint64_t free_bytes;	   /* the device's free memory then */
	uint64_t allocated_bytes;  /* and what this process had allocated */
	uint64_t managed_bytes;	   /* of that: managed memory */
	nvmlDevice_t nvml_device; /* NULL: not looked up yet */
};

/* The thread that looks after what is in flight (gate/poller.h). */
enum vgpu_poller { VGPU_POLLER_NONE = 0, VGPU_POLLER_STARTED, VGPU_POLLER_STARTING };

enum vgpu_pool_state {
	VGPU_POOL_UNUSED = 0,
	VGPU_POOL_LIVE,
	VGPU_POOL_GRAPHS, /* what the driver keeps for the graphs of one device */
	VGPU_POOL_DEAD,	  /* destroyed by the program; some of its blocks may live */
};

/* What something is charged that the driver is asked about, under account_lock; see account/reserve.h. */
struct vgpu_tally {
	uint64_t charged_bytes;
	uint64_t flying_bytes;	 /* that calls which are in the driver now may take */
	uint64_t reserved_bytes; /* of these: in may_take_bytes, not charged */
	uint64_t begun_bytes;	 /* that all calls ever begun might take */
	bool charges;		 /* what calls may take is charged at once instead of reserved */
	bool ended;
};

/* What is known of one stream-ordered pool; see pools/pools.h. */
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

/* What the driver last said of a device's memory; see driver/free_memory.h. */
struct vgpu_free_memory {
	uint32_t sequence;
	int32_t device; /* index in vgpu_limits.device */
	CUcontext context; /* NULL: nothing is known */
	uint64_t asked_ns;
	uint64_t free_bytes, total_bytes;
	uint64_t held_bytes; /* what this process was charged then */
};

struct vgpu_process {
	/* What nearly every call looks at and few change lies together, in one line of the cache. */
	uint32_t stage;
	uint32_t graphs_with_memory; /* executable graphs in the table */
	uint32_t captures;	     /* that have begun and not ended; see driver/capture.h */
	uint32_t overhead_pending;   /* something was loaded, so that a launch may make the driver take memory */
	uint32_t opened;	     /* ever: memory of other processes that is open here, this one's once they have ended;
				      * and of this one that nothing but descriptors keeps */
	uint32_t pools_high;
	uint32_t gated;		  /* launches may have to wait; see gate/gate.h */
	uint32_t contexts_made;	  /* ever, wherever they lie */
	uint32_t overhead_closed; /* of what was opened: closed, and looked at since */
	uint32_t gate_decided;	  /* how often gated was decided */
	uint64_t overhead_due_ns; /* when to ask for the driver's overhead next */
	uint64_t gate_generation; /* 1 + that of the limits page when gated was decided */
	uint32_t gate_boards;	  /* and how the boards of its devices stood then */
	uint32_t gate_sequence[VGPU_MAX_DEVICES];
	const struct vgpu_board *gate_board[VGPU_MAX_DEVICES];
	uint8_t several_devices;    /* 0 not asked yet, 1 no, 2 yes */
	uint32_t closed;	    /* of what was opened, ever */
	uint32_t overhead_decided;  /* gate_decided when the driver was asked last */
	uint64_t overhead_every_ns; /* how often it is asked now */
	const char *refused_why;

	/* Who this is, as in the ledger's slot. */
	int32_t pid;
	uint64_t start_ticks;
	uint64_t pidns;
	uint64_t image;
	uint32_t slot;
	uint32_t step;
	/* held_bytes and may_take_bytes are the same as in the slot, out of reach of whoever writes into the
	 * ledger, its lock included. They change under account_lock, and so do tallies; within
	 * that no other one is taken but the ledger's. */
	uint32_t account_lock;
	uint64_t held_bytes[VGPU_MAX_DEVICES];
	uint64_t may_take_bytes[VGPU_MAX_DEVICES];

	uint64_t swept_ns;
	uint64_t in_vain_ns; /* when others' contexts were last waited for without any good */
	uint64_t robbed_ns; /* when the ledger's lock had to be taken although it seemed to be passed on */
	uint32_t said_limit;
	uint32_t said_refused;
	uint32_t said_no_thread;

	/* CUDA ordinal → 1 + index in vgpu_limits.device, 255 not granted, 0 not asked yet. */
	uint8_t device_of[VGPU_CACHED_DEVICES];

	/* memory/blocks.c and memory/granules.c. */
	struct vgpu_shard blocks[VGPU_SHARDS];
	uint16_t blocks_there[VGPU_BLOCK_CELLS]; /* how many, by a hash of their address */
	struct vgpu_shard granules[VGPU_SHARDS];
	uint64_t managed_bytes[VGPU_MAX_DEVICES]; /* what of them is charged for managed memory */

	uint32_t vmm_mutex;
	uint64_t vmm_last; /* the last key in vmm_memory */
	struct vgpu_table vmm_memory;
	struct vgpu_table vmm_handles;
	struct vgpu_table vmm_mappings;

	/* Memory given out as file descriptors and the blocks of it (memory/descriptors.c), what is bound to multicast
	 * objects, and what cuMemMapArrayAsync has mapped: all under vmm_mutex. */
	struct vgpu_table vmm_descriptors;
	struct vgpu_table exported_blocks;
	struct vgpu_table vmm_bindings;
	struct vgpu_table array_maps;

	uint32_t context_mutex;
	uint32_t nvml_ready; /* driver/report.c */
	struct vgpu_context context[VGPU_MAX_CONTEXTS];

	/* context/overhead.c */
	uint32_t overhead_mutex;
	struct vgpu_overhead overhead[VGPU_MAX_DEVICES];

	struct vgpu_free_memory free_memory;

	/* CUDA ordinal → 1 + index in pool of the one that its streams allocate from, 0 not asked yet; in the
	 * bits above 8: how often that may have changed. */
	uint64_t chosen_pool[VGPU_CACHED_DEVICES];
	uint32_t pools_mutex; /* for taking a place in the table and leaving it: state and live */
	struct vgpu_pool pool[VGPU_MAX_POOLS];

	uint32_t graphs_mutex;
	uint64_t graphs_trimmed;     /* how often graph memory may have gone back to the device */
	struct vgpu_table graphs;

	/* The share of the GPU's time (gate/gate.h). */
	uint32_t gate_mutex;
	uint32_t poller; /* enum vgpu_poller */
	uint32_t watchdog_started;
	uint32_t poller_sleeps;
	uint32_t poller_bell;
	uint64_t poller_until_ns; /* how long it sleeps at most, where that is long and it sleeps at all */
	uint32_t poller_mutex;	 /* for what the watchdog does in its stead */
	uint64_t poller_queries_ns; /* since when it is in calls of the driver; 0: it is not */
	uint32_t watchdog_bell;	 /* nobody rings it */
	uint32_t synchronised; /* the program has waited for results since the last launch */
	CUcontext poller_context; /* current in the poller's thread */
	struct vgpu_engine engine[VGPU_MAX_DEVICES];
};

_Static_assert(offsetof(struct vgpu_process, gate_sequence) < 64, "one line of the cache");

/* The step's pages. Set once; they stay mapped in forked children. */
struct vgpu_pages {
	const struct vgpu_limits *limits;
	struct vgpu_ledger *ledger;
};
extern struct vgpu_pages vgpu_pages;

extern struct vgpu_process *vgpu_this_process __attribute__((visibility("hidden")));

/* The memory of this process, which is made if need be; NULL when it cannot be had. */
struct vgpu_process *vgpu_process_memory(void);

/* The stage of what vgpu_attach (account/attach.h) returned. */
static inline uint32_t vgpu_stage(const struct vgpu_process *p)
{
	return p == NULL ? (uint32_t)VGPU_REFUSED : __atomic_load_n(&p->stage, __ATOMIC_ACQUIRE);
}

#endif

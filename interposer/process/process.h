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
#include "process/engine.h"

#include <stdbool.h>
#include <stddef.h>

enum vgpu_stage {
	VGPU_NEW = 0,
	VGPU_BUSY,	/* some thread is attaching */
	VGPU_ATTACHED,
	VGPU_REFUSED,	/* no limits that can be believed: CUDA is not permitted */
	VGPU_UNLIMITED, /* no ledger that can be used, and the limits page lets the program run */
};

/* The thread that looks after what is in flight (gate/poller.h). */
enum vgpu_poller { VGPU_POLLER_NONE = 0, VGPU_POLLER_STARTED, VGPU_POLLER_STARTING };

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
	const char *refused_why;

	/* Who this is, as in the ledger's slot. */
	int32_t pid;
	uint64_t start_ticks;
	uint64_t pidns;
	uint64_t image;
	uint32_t slot;
	uint32_t step;
	uint32_t said_limit;
	uint32_t said_refused;
	uint32_t said_no_thread;

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

/* What rooms further up keep lies behind it (own.h of each), in places whose offsets are constants. Those of
 * which little is looked at follow each other by lines of the cache, large ones begin a page. */
#define VGPU_AFTER(bytes) (((bytes) + 63) / 64 * 64)
#define VGPU_PAGE_AFTER(bytes) (((bytes) + 4095) / 4096 * 4096)
enum {
	VGPU_ACCOUNT_AT = VGPU_AFTER(sizeof(struct vgpu_process)),
	VGPU_DRIVER_AT = VGPU_ACCOUNT_AT + 5 * 64,
	VGPU_CONTEXT_AT = VGPU_DRIVER_AT + 37 * 64,
	VGPU_MEMORY_AT = VGPU_PAGE_AFTER(VGPU_CONTEXT_AT + 21 * 64),
	VGPU_POOLS_AT = VGPU_MEMORY_AT + 9 * 4096,
	VGPU_OWN_BYTES = VGPU_POOLS_AT + 5 * 4096,
};

static inline void *vgpu_own(const struct vgpu_process *p, size_t at)
{
	return (char *)p + at;
}

/* The step's pages. Set once; they stay mapped in forked children. */
struct vgpu_pages {
	const struct vgpu_limits *limits;
	struct vgpu_ledger *ledger;
	const char *turns_dir; /* the folder of boards and claims, as this process sees it */
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

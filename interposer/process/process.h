/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What one process keeps: whether it has found its limits, its slot in the ledger, and behind that what the
 * rooms know of its memory and launches. All of it lies in one piece of memory that a forked child sees as
 * zeros, so that the child starts anew and never gives back what its parent holds. A vfork or CLONE_VM child
 * shares the memory and so, rightly, the account. */
#ifndef VGPU_PROCESS_PROCESS_H
#define VGPU_PROCESS_PROCESS_H

#include "api/cuda_types.h"
#include "api/layout.h"
#include "tuning.h"

#include <stdbool.h>
#include <stddef.h>

enum vgpu_stage {
	VGPU_NEW = 0,
	VGPU_BUSY, /* some thread is attaching */
	VGPU_ATTACHED,
	VGPU_REFUSED, /* no limits that can be believed: CUDA is not permitted */
	VGPU_UNLIMITED, /* no ledger that can be used, and the limits page lets the program run */
};

struct vgpu_process {
	/* The words that nearly every call reads and few calls change lie together, in one line of the cache:
	 * so words of other rooms are here. */
	uint32_t stage;
	uint32_t captures; /* that have begun and not ended; see driver/capture.h */
	uint32_t contexts_made; /* ever, wherever they lie */
	uint32_t opened; /* ever: memory of other processes that is open here, this one's once they have
			  * ended; and of this one that nothing but descriptors keeps; see memory/holders.h */
	uint32_t pools_high;
	uint32_t graphs_with_memory; /* executable graphs in the table */
	uint32_t loads; /* how often something was loaded; see context/overhead.h */
	uint32_t launched; /* and how often it had been when a launch began that found more of them */
	uint32_t overhead_pending; /* something was loaded: a launch may make the driver take memory */
	uint32_t overhead_closed; /* of what was opened: closed, and looked at since */
	uint64_t overhead_due_ns; /* when to ask for the driver's overhead next */

	/* This process, as in the ledger's slot. */
	int32_t pid;
	uint32_t slot;
	uint32_t step;
	uint64_t start_ticks;
	uint64_t pidns;
	uint64_t image;

	const char *refused_why;
	/* See process/message.h. */
	uint32_t said_limit;
	uint32_t said_refused;
};

_Static_assert(offsetof(struct vgpu_process, pid) <= 64, "one line of the cache");

/* The structs of the rooms lie behind it (own.h of each), in places whose offsets are constants. Small ones
 * follow each other by lines of the cache, large ones begin a page. The account's does not lie where in a
 * page the ledger has its sums: there a pair of cuMemAlloc and cuMemFree took some 20 ns more. */
#define VGPU_NEXT(bytes, at) ((((at) + (bytes)-1) / (bytes)) * (bytes))
enum {
	VGPU_DRIVER_AT = VGPU_NEXT(VGPU_LINE_BYTES, sizeof(struct vgpu_process)),
	VGPU_ACCOUNT_AT = VGPU_DRIVER_AT + 38 * VGPU_LINE_BYTES,
	VGPU_CONTEXT_AT = VGPU_ACCOUNT_AT + 5 * VGPU_LINE_BYTES,
	VGPU_GATE_AT = VGPU_NEXT(VGPU_PAGE_BYTES, VGPU_CONTEXT_AT + 19 * VGPU_LINE_BYTES),
	VGPU_MEMORY_AT = VGPU_GATE_AT + 8 * VGPU_PAGE_BYTES,
	VGPU_POOLS_AT = VGPU_MEMORY_AT + 9 * VGPU_PAGE_BYTES,
	VGPU_CHANNELS_AT = VGPU_POOLS_AT + 5 * VGPU_PAGE_BYTES,
	VGPU_OWN_BYTES = VGPU_CHANNELS_AT + 10 * VGPU_PAGE_BYTES,
};

static inline void *vgpu_own(const struct vgpu_process *p, size_t at)
{
	return (char *)p + at;
}

/* The step's pages. Set once; they stay mapped in forked children. */
struct vgpu_pages {
	const struct vgpu_limits *limits;
	struct vgpu_ledger *ledger;
	const char *ledger_path; /* NULL: it is too long */
	const char *pages_dir; /* the folder of the job's pages, as this process sees it */
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

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The order in which one thread takes the locks: each only while those that it has are of lower rank. With
 * VGPU_TEST_RANKS, where tests run (make INTERPOSER_DEBUG=-DVGPU_TEST_RANKS, and with the sanitizers), a
 * thread with another order ends the program, and so does one that gives back a lock that is free. Otherwise
 * there is nothing of this in the library. */
#ifndef VGPU_BASE_RANKS_H
#define VGPU_BASE_RANKS_H

#include <stdint.h>

enum vgpu_rank {
	VGPU_RANK_GATE = 1,   /* what it has in flight (gate/gate.c) */
	VGPU_RANK_BLOCKS,     /* a part of them (memory/blocks.c) */
	VGPU_RANK_GRANULES,   /* a part of them (memory/granules.c) */
	VGPU_RANK_HANDLES,    /* and mappings, descriptors, bindings, parts of arrays (memory/vmm.c) */
	VGPU_RANK_REACHING,   /* where the driver keeps an address (channels/reach.c) */
	VGPU_RANK_VISIBLE,    /* which GPUs the driver finds when it starts (driver/visible.c) */
	VGPU_RANK_CONTEXTS,   /* which there are (driver/contexts.c) */
	VGPU_RANK_GRAPHS,     /* that have memory (pools/graphs.c) */
	VGPU_RANK_POOLS,      /* which there are (pools/table.c) */
	VGPU_RANK_OVERHEAD,   /* the driver's (context/overhead.c) */
	VGPU_RANK_ACCOUNT,    /* what this process is charged (account/) */
	VGPU_RANK_LEDGER,     /* the job's, of all its processes (account/lock.c) */
};

#ifdef VGPU_TEST_RANKS

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define VGPU_LOCKS_AT_ONCE 8

/* Of the calling thread. Defined wherever it is included, and one for all of them. */
__attribute__((weak)) __thread struct vgpu_locks_held {
	uint32_t count;
	struct {
		const uint32_t *lock;
		enum vgpu_rank rank;
	} lock[VGPU_LOCKS_AT_ONCE];
} vgpu_locks_held;

static inline void vgpu_lock_wrong(const char *what, unsigned int rank, unsigned int held)
{
	char line[128];
	int length = snprintf(line, sizeof(line), "vgpu: %s of rank %u with one of rank %u held\n", what,
			      rank, held);

	if (syscall(SYS_write, STDERR_FILENO, line, (size_t)length) < 0)
		__builtin_trap();
	__builtin_trap();
}

/* Before it is taken, so that two threads which wait for each other are found as well. */
static inline void vgpu_lock_comes(const uint32_t *lock, enum vgpu_rank rank)
{
	struct vgpu_locks_held *held = &vgpu_locks_held;

	for (uint32_t i = 0; i < held->count; i++) {
		if (held->lock[i].rank >= rank)
			vgpu_lock_wrong("a lock is taken", rank, held->lock[i].rank);
	}
	if (held->count == VGPU_LOCKS_AT_ONCE)
		__builtin_trap();
	held->lock[held->count].lock = lock;
	held->lock[held->count++].rank = rank;
}

static inline void vgpu_lock_goes(const uint32_t *lock)
{
	struct vgpu_locks_held *held = &vgpu_locks_held;
	uint32_t i = 0;

	while (i < held->count && held->lock[i].lock != lock)
		i++;
	if (i == held->count)
		vgpu_lock_wrong("a lock is given back that was not taken,", 0,
				held->count == 0 ? 0 : held->lock[held->count - 1].rank);
	held->lock[i] = held->lock[--held->count];
}

#else

#define vgpu_lock_comes(lock, rank) ((void)(lock), (void)(rank))
#define vgpu_lock_goes(lock) ((void)(lock))

#endif

#endif

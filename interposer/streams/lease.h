/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A thread's permission to put some more short launches into the stream that it has just launched into,
 * paid for beforehand, with nothing to be done for each but to count it. Given where the share is ample,
 * because a program that is bound by its launches should not feel one that it does not use up.
 *
 * The counts of a stream's lease are one word, so that whoever closes it knows them all, and a thread
 * whose launch came too late knows that. */
#ifndef VGPU_STREAMS_LEASE_H
#define VGPU_STREAMS_LEASE_H

#include "streams/engine.h"

#include <stdbool.h>
#include <stddef.h>

/* What was launched with a lease. */
struct vgpu_leased {
	uint32_t launches;
	uint64_t expected_ns;
};

/* With the stream's mutex held, by who is going to launch there: for so many launches that take so long
 * at the most. Ends the lease before. */
void vgpu_lease_open(struct vgpu_engine *engine, struct vgpu_stream *stream, CUcontext context,
		     CUstream handle, uint32_t launches, uint64_t ns);

/* With the stream's mutex held. No launch is counted afterwards. */
struct vgpu_leased vgpu_lease_close(struct vgpu_stream *stream);
/* Whether more may come; *launches: how many there were until now. */
bool vgpu_lease_is_open(const struct vgpu_stream *stream, uint32_t *launches);

/* What a thread knows of its lease: one line of the cache, as is all that such a launch looks at.
 * cuda/free_launch.S knows the first two. */
struct vgpu_lease {
	int32_t free;  /* launches for which a thread without a lease need not look at the gate (gate/gate.h)
			*/
	uint32_t left; /* launches; 0: there is no lease */
	CUstream handle;
	uint64_t left_ns;
	uint64_t whose;
	struct vgpu_stream *stream;
	struct vgpu_engine *engine;
	CUcontext context;
} __attribute__((aligned(64)));
_Static_assert(offsetof(struct vgpu_lease, free) == 0 && offsetof(struct vgpu_lease, left) == 4,
	       "free_launch.S");
extern __thread struct vgpu_lease vgpu_lease __attribute__((visibility("hidden")));

/* Whether the calling thread may have a lease for the stream. */
static inline bool vgpu_lease_is_at_hand(CUstream handle)
{
	return vgpu_lease.left != 0 && vgpu_lease.handle == handle;
}
/* Then, before a launch: whether the lease covers it; *expected_ns: how long it takes. what and shape as in
 * gate/gate.h. */
bool vgpu_lease_covers(struct vgpu_process *p, const void *what, uint64_t shape, uint64_t *expected_ns);
/* After it. False when the lease was closed meanwhile: the launch is not counted yet. */
bool vgpu_lease_count_one(uint64_t expected_ns);
/* The thread uses its lease no more: it begins several launches before it ends the first of them, or has
 * waited for results where others wait for its turn to end. */
void vgpu_lease_drop(void);
void vgpu_lease_drop_if_shared(void);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this process has given to one device or waits to, as far as admission goes by it. */
#ifndef VGPU_ADMISSION_LOAD_H
#define VGPU_ADMISSION_LOAD_H

#include "base/futex.h"
#include "process/process.h"

#include <stdbool.h>

/* This slice's turn (admission/turns.h). Only the poller changes it. */
struct vgpu_turns {
	uint64_t looked_ns;
	uint64_t idle_since_ns;
	uint32_t drains; /* of the load, and what had been used, when it was last judged */
	uint64_t used_ns;
	uint32_t rests; /* turns that were left with nothing more to do, since then */
	uint64_t frame_ns; /* in which all slices have a turn */
	uint64_t taken_ns; /* when the last turn was taken */
	uint64_t held_ns; /* when another one was last seen to hold its turn */
	uint64_t may_until_ns; /* launches that would end later wait; UINT64_MAX: no turns are taken, 0: it is
				  another's */
	uint64_t quantum_ns; /* how long this turn is */
	uint32_t full; /* something waits that does not fit into what is left of it */
	uint32_t neighbours; /* other slices of the GPU */
	bool shared; /* other slices lie on the GPU, and may want turns */
	bool waited; /* for somebody else's turn, since the last look */
	bool spare;
};

struct vgpu_load {
	uint32_t bell; /* futex of those who wait to launch; changes when it is worth another look */
	uint32_t waiters;
	uint32_t in_flight; /* groups of all streams */
	uint32_t loose; /* of these: that were never held back, so that the GPU does not time them */
	uint32_t drains; /* how often the program has waited until all was done before it launched more */
	uint32_t unknown; /* of these: of which nobody knows how long they take */
	uint32_t waited; /* a launch has had to wait since the last look */
	uint32_t ample; /* none had to for a while, and no turns are taken */
	int64_t credit_ns; /* taken from the share and not used yet */
	/* Of this process's round among those of its job (admission/queue.h); 0: nobody else waits. */
	int64_t round_left_ns;
	uint64_t round_since_ns; /* what its place in the order is by */
	uint64_t round_seen_ns; /* and when it last waited */
	uint64_t expected_ns; /* of all that is in flight */
	uint64_t stalled_ns; /* something in flight takes much longer than expected, since then; 0: nothing */
	uint64_t burst_ns; /* credit that is kept; more after waiting for somebody else's turn */
	uint64_t progress_ns; /* when a group was last begun on an idle device, or done */
	uint64_t others_until_ns; /* no work of this slice could begin before: another one's was in the way */
	/* Batches [first, next) are held back (gate/batch.h); their numbers are one more. */
	uint64_t batch_first, batch_next;
	uint64_t batch_try_ns; /* not worth it before to let one go */
	struct vgpu_turns turns;
};

/* It lies first in what the streams have in flight on the device (streams/engine.h). */
static inline struct vgpu_load *vgpu_load(const struct vgpu_process *p, uint32_t device)
{
	return vgpu_own(p, VGPU_ENGINES_AT + (size_t)device * VGPU_ENGINE_BYTES);
}

/* Whether anything is held back on the GPU (gate/batch.h); and whether that batch is. */
static inline bool vgpu_batch_pending(const struct vgpu_load *load)
{
	return __atomic_load_n(&load->batch_next, __ATOMIC_RELAXED) !=
	       __atomic_load_n(&load->batch_first, __ATOMIC_RELAXED);
}

static inline bool vgpu_batch_is_held(const struct vgpu_load *load, uint64_t batch)
{
	return batch > __atomic_load_n(&load->batch_first, __ATOMIC_ACQUIRE);
}

/* Those who wait to launch have another look. */
static inline void vgpu_load_ring(struct vgpu_load *load)
{
	__atomic_fetch_add(&load->bell, 1, __ATOMIC_RELEASE);
	if (__atomic_load_n(&load->waiters, __ATOMIC_RELAXED) != 0)
		vgpu_futex_wake(&load->bell, INT32_MAX, FUTEX_PRIVATE_FLAG);
}

/* Whether there is more to launch: threads wait for it, or it is held back on the GPU. */
static inline bool vgpu_load_waits(const struct vgpu_load *load)
{
	return __atomic_load_n(&load->waiters, __ATOMIC_RELAXED) != 0 || vgpu_batch_pending(load);
}

/* How long what is in flight still takes. */
static inline uint64_t vgpu_load_remaining(const struct vgpu_load *load, uint64_t now_ns)
{
	uint64_t expected = __atomic_load_n(&load->expected_ns, __ATOMIC_RELAXED);
	uint64_t done = now_ns - __atomic_load_n(&load->progress_ns, __ATOMIC_RELAXED);

	if (__atomic_load_n(&load->in_flight, __ATOMIC_RELAXED) == 0)
		return 0;
	return expected > done ? expected - done : 0;
}

#endif

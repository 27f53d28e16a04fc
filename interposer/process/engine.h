/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this process has in flight on one device, and what it may still launch there. Threads that
 * launch pass through gate/gate.h; one thread of ours (gate/poller.h) looks at what is done and settles. */
#ifndef VGPU_PROCESS_ENGINE_H
#define VGPU_PROCESS_ENGINE_H

#include "api/cuda_types.h"
#include "base/futex.h"
#include "process/seat.h"
#include "time/cost.h"
#include "time/meter.h"

#include <stdbool.h>

/* More than are needed for all launches that are held back, and for those that were let go last. */
#define VGPU_STREAMS 1024
#define VGPU_GROUPS 128
#define VGPU_BATCHES 32
#define VGPU_SAMPLES 8

/* Launches of one stream with one marker behind the last of them. */
struct vgpu_group {
	CUevent marker; /* stays with the place */
	CUevent front;	/* the same: in front of the first launch, where the stream has other things to do before */
	CUevent begin, end; /* the same: around what was held back, to be timed; end is the marker then */
	bool fronted;	/* it has been recorded */
	bool reached;	/* and was seen to be reached */
	uint64_t held_ns; /* until when the stream had those to do, as far as is known */
	uint64_t begun_ns; /* when it was first seen to be at work, where it was not seen to have those to do; or 0 */
	uint32_t launches;
	uint32_t inside; /* threads that are launching one of them just now */
	bool closed;	 /* no more are added */
	bool timed;	 /* both have been recorded */
	bool begun;	 /* the first of them has */
	bool dense;	 /* all of it was launched before any of it could begin */
	bool held;	 /* its batch has not been let go (gate/batch.h): it is not in flight yet */
	uint64_t batch;	 /* 0: it was never held back */
	bool marked;	 /* a marker has been recorded */
	uint32_t unmarked; /* launches behind the last marker */
	uint64_t first_ns, last_ns, pending_ns;
	uint64_t reached_ns; /* when it was seen to be done, with so many launches; 0: not yet */
	uint32_t reached_launches;
	uint64_t took_ns; /* as the GPU has timed it; or 0 */
	uint64_t expected_ns;
	uint64_t unseen_ns;   /* the same where they are not seen to be at work (time/cost.h) */
	uint64_t reserved_ns; /* taken from the share for them */
	uint64_t paid_ns;     /* of that, settled already while they were at work */
	uint64_t only_key;    /* whose they are, when there is just one launch of unknown length */
	uint64_t unsure_ns;   /* how long before first_ns that may have begun */
};

enum vgpu_stream_state { VGPU_STREAM_UNUSED = 0, VGPU_STREAM_LIVE, VGPU_STREAM_DEAD };

/* What the launch path and the poller look at in passing comes first: there may be many of them. */
struct vgpu_stream {
	uint32_t mutex;
	uint32_t state;
	CUstream handle;
	CUcontext context;
	uint64_t thread; /* of a per-thread default stream */
	uint32_t head, tail; /* groups [tail, head) are in flight, modulo VGPU_GROUPS; from 0 on when none is */
	struct vgpu_group *group; /* VGPU_GROUPS of them; they stay with the place */
	uint32_t users; /* threads that use its events with the mutex released */
	uint64_t drained_ns; /* when all of it should be done */
	uint64_t held_ns; /* until when it last had other things to do than what is counted */
	uint64_t waits_for_batch; /* the last batch that it waits for, or did */
	uint64_t batch, batch_ns; /* the last one that it has launches in, and what is expected of them */
	bool beside; /* something that is not counted has been put into it since the last launch */
	uint64_t leased;	/* what was launched with the lease for the last group; see streams/lease.h */
	uint64_t lease_ns;	/* what was taken for it */
	uint32_t leases_given;
	uint32_t leased_seen;	/* launches with it at the last look */
	struct vgpu_meter meter;
};

/* Launches that are let go together. */
struct vgpu_batch {
	uint64_t ns; /* what is expected of the stream that has most of them */
	uint64_t all_ns; /* and of all streams */
	uint64_t begun_ns;
	uint32_t launches;
};

/* What waits for admission (admission/admission.h): since when that is so for either reason; 0: it is not. */
struct vgpu_waiting {
	uint64_t stalled_ns; /* something in flight stalls */
	uint64_t credit_ns; /* there is no credit */
};

/* One launch that is timed on the GPU. */
struct vgpu_sample {
	uint32_t state;
	bool beside;	     /* other work was on the GPU when it was launched */
	uint32_t spoilt;     /* the GPU went on before the launch was there */
	uint32_t semaphore_value; /* what the GPU waits for before it; 0: it does not wait */
	uint64_t waits_since_ns;
	uint64_t batch; /* as long as that is held back it need not be asked about; or 0 */
	uint64_t key, kernel_key;
	CUcontext context;
	CUevent before, begin, end;
};

/* A launch whose call was not back when its semaphore was signalled; see streams/sample.c. */
#define VGPU_LATE_CALLS 64
struct vgpu_late_call {
	uint64_t key;
	uint32_t times; /* in a row */
};

struct vgpu_engine {
	uint32_t bell; /* futex of those who wait to launch; changes when it is worth another look */
	uint32_t waiters;
	uint32_t in_flight; /* groups of all streams */
	uint32_t loose;	    /* of these: that were never held back, so that the GPU does not time them */
	uint32_t drains;    /* how often the program has waited until all was done before it launched more */
	uint32_t unknown;   /* of these: of which nobody knows how long they take */
	uint32_t streams_high;
	uint16_t streams_seen[VGPU_STREAMS]; /* by handle: where a stream has its place, most likely */
	uint32_t waited; /* a launch has had to wait since the last look */
	uint32_t ample;	 /* none had to for a while, and no turns are taken */
	int64_t credit_ns; /* taken from the share and not used yet */
	int64_t round_left_ns; /* of this process's round among those of its job (admission/queue.h); 0: nobody else waits */
	uint64_t round_since_ns, round_seen_ns; /* what its place in the order is by, and when it last waited */
	uint64_t expected_ns; /* of all that is in flight */
	uint64_t waited_ns;   /* when a look last found that one had waited, for the poller alone */
	uint64_t stalls_ns;   /* as stalled_ns, during a look, for the poller alone */
	uint64_t longer_ns;   /* when something was last seen to take much longer than expected, likewise */
	uint64_t stalled_ns;  /* something in flight takes much longer than expected, since then; 0: nothing */
	uint64_t overhead_ns; /* of timing */
	uint32_t saved; /* what a launch takes less right behind another one (time/cost.h) */
	uint64_t burst_ns;    /* credit that is kept; more after waiting for somebody else's turn */
	uint64_t progress_ns; /* when a group was last begun on an idle device, or done */
	uint64_t others_until_ns; /* no work of this slice could begin before: another one's was in the way */
	struct vgpu_meter_device meter; /* only the poller has to do with it */
	struct vgpu_seat seat;
	uint32_t streams_mutex;
	uint32_t *semaphores; /* see streams/semaphore.h */
	uint32_t semaphores_refused; /* the driver cannot */
	CUcontext semaphores_context;
	uint32_t batch_mutex;
	uint32_t releasing; /* a thread lets batches go */
	/* Batches [first, next) are held back, modulo VGPU_BATCHES; their numbers are one more. */
	uint64_t batch_first, batch_next;
	uint64_t held_ns, held_launches; /* in all of them */
	uint64_t opened_ns; /* when one was let go last */
	struct vgpu_waiting batch_waiting; /* the oldest of them */
	uint64_t batch_try_ns; /* not worth it before */
	struct vgpu_batch batch[VGPU_BATCHES];
	struct vgpu_stream stream[VGPU_STREAMS];
	uint32_t samples_taken; /* a bit for each that may not be free */
	struct vgpu_sample sample[VGPU_SAMPLES];
	struct vgpu_late_call late_call[VGPU_LATE_CALLS];
	struct vgpu_cost cost[VGPU_COSTS];
};

/* Whether anything is held back on the GPU (gate/batch.h); and whether that batch is. */
static inline bool vgpu_batch_pending(const struct vgpu_engine *engine)
{
	return __atomic_load_n(&engine->batch_next, __ATOMIC_RELAXED) != __atomic_load_n(&engine->batch_first, __ATOMIC_RELAXED);
}

static inline bool vgpu_batch_is_held(const struct vgpu_engine *engine, uint64_t batch)
{
	return batch > __atomic_load_n(&engine->batch_first, __ATOMIC_ACQUIRE);
}

/* Those who wait to launch have another look. */
static inline void vgpu_engine_ring(struct vgpu_engine *engine)
{
	__atomic_fetch_add(&engine->bell, 1, __ATOMIC_RELEASE);
	if (__atomic_load_n(&engine->waiters, __ATOMIC_RELAXED) != 0)
		vgpu_futex_wake(&engine->bell, INT32_MAX, FUTEX_PRIVATE_FLAG);
}

/* Whether there is more to launch: threads wait for it, or it is held back on the GPU. */
static inline bool vgpu_engine_waits(const struct vgpu_engine *engine)
{
	return __atomic_load_n(&engine->waiters, __ATOMIC_RELAXED) != 0 || vgpu_batch_pending(engine);
}

/* Whether somebody has to look at it: something is in flight or waits, or is timed. Who makes it so does it before
 * looking whether the poller sleeps (gate/poller.h). */
static inline bool vgpu_engine_is_watched(const struct vgpu_engine *engine)
{
	return __atomic_load_n(&engine->in_flight, __ATOMIC_SEQ_CST) != 0 || __atomic_load_n(&engine->samples_taken, __ATOMIC_SEQ_CST) != 0 ||
	       __atomic_load_n(&engine->waiters, __ATOMIC_SEQ_CST) != 0 ||
	       __atomic_load_n(&engine->batch_next, __ATOMIC_SEQ_CST) != __atomic_load_n(&engine->batch_first, __ATOMIC_RELAXED);
}

/* How long what is in flight still takes. */
static inline uint64_t vgpu_engine_remaining(const struct vgpu_engine *engine, uint64_t now_ns)
{
	uint64_t expected = __atomic_load_n(&engine->expected_ns, __ATOMIC_RELAXED);
	uint64_t done = now_ns - __atomic_load_n(&engine->progress_ns, __ATOMIC_RELAXED);

	if (__atomic_load_n(&engine->in_flight, __ATOMIC_RELAXED) == 0)
		return 0;
	return expected > done ? expected - done : 0;
}

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What this process has in flight on one device: streams, their groups of launches, and what is timed.
 * Threads that launch pass through gate/gate.h; one thread of ours (gate/poller.h) looks at what is done and
 * settles. */
#ifndef VGPU_STREAMS_ENGINE_H
#define VGPU_STREAMS_ENGINE_H

#include "admission/load.h"
#include "api/cuda_types.h"
#include "time/cost.h"
#include "time/meter.h"

#include <stdbool.h>
#include <stddef.h>

/* More than are needed for all launches that are held back, and for those that were let go last. */
#define VGPU_STREAMS 1024
#define VGPU_GROUPS 128
#define VGPU_SAMPLES 8

/* Whether the GPU has a group yet: what is held back is let go, and then one more may still join it. */
enum vgpu_group_flight {
	VGPU_FLIGHT_LOOSE = 0, /* some of it may have been launched when some was at work */
	VGPU_FLIGHT_HELD, /* its batch has not been let go (gate/batch.h) */
	VGPU_FLIGHT_DENSE, /* let go, all of it launched before any of it could begin */
};

/* What lies in front of its first launch: the end of other things that the stream had to do. */
enum vgpu_group_front { VGPU_FRONT_NOTHING = 0, VGPU_FRONT_RECORDED, VGPU_FRONT_REACHED };

/* What lies behind its last one: an event, and then maybe a later one. With end the GPU times the group. */
enum vgpu_group_behind { VGPU_BEHIND_NOTHING = 0, VGPU_BEHIND_MARKER, VGPU_BEHIND_END };

/* Launches of one stream with one marker behind the last of them. */
struct vgpu_group {
	/* Events that stay with the place. */
	CUevent marker; /* behind the last launch */
	CUevent front; /* in front of the first one, where the stream has other things to do before */
	CUevent begin, end; /* around what was held back, to be timed; end is the marker then */
	uint8_t flight; /* enum vgpu_group_flight */
	uint8_t fronted; /* enum vgpu_group_front */
	uint8_t behind; /* enum vgpu_group_behind */
	bool begun; /* begin has been recorded */
	bool closed; /* no more are added */
	uint32_t launches;
	uint32_t inside; /* threads that are launching one of them just now */
	uint32_t unmarked; /* launches behind the last marker */
	uint32_t reached_launches; /* how many there were when it was seen to be done */
	uint64_t batch; /* 0: it was never held back */
	uint64_t held_ns; /* until when the stream had other things to do, as far as is known */
	uint64_t begun_ns; /* when it was first seen to be at work, where it was not seen to have those to do;
			      or 0 */
	uint64_t first_ns, last_ns, pending_ns;
	uint64_t reached_ns; /* when it was seen to be done; 0: not yet */
	uint64_t took_ns; /* as the GPU has timed it; or 0 */
	uint64_t expected_ns;
	uint64_t unseen_ns; /* the same where they are not seen to be at work (time/cost.h) */
	uint64_t reserved_ns; /* taken from the share for them */
	uint64_t paid_ns; /* of that, settled already while they were at work */
	uint64_t only_key; /* whose they are, when there is just one launch of unknown length */
	uint64_t unsure_ns; /* how long before first_ns that may have begun */
};

enum vgpu_stream_state { VGPU_STREAM_UNUSED = 0, VGPU_STREAM_LIVE, VGPU_STREAM_DEAD };

/* What the launch path and the poller look at in passing comes first: there may be many of them. */
struct vgpu_stream {
	uint32_t mutex;
	uint32_t state;
	CUstream handle;
	CUcontext context;
	uint64_t thread; /* of a per-thread default stream */
	/* Groups [tail, head) are in flight, modulo VGPU_GROUPS; from 0 on when none is. */
	uint32_t head, tail;
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
	struct vgpu_load load; /* first: admission finds it there */
	uint32_t streams_high;
	uint16_t streams_seen[VGPU_STREAMS]; /* by handle: where a stream has its place, most likely */
	uint64_t waited_ns; /* when a look last found that one had waited, for the poller alone */
	uint64_t stalls_ns; /* as the load's stalled_ns, during a look, for the poller alone */
	uint64_t longer_ns; /* when something was last seen to take much longer than expected, likewise */
	uint64_t overhead_ns; /* of timing */
	uint32_t saved; /* what a launch takes less right behind another one (time/cost.h) */
	struct vgpu_meter_device meter; /* only the poller has to do with it */
	uint32_t streams_mutex;
	uint32_t *semaphores; /* see streams/semaphore.h */
	uint32_t semaphores_refused; /* the driver cannot */
	CUcontext semaphores_context;
	struct vgpu_stream stream[VGPU_STREAMS];
	uint32_t samples_taken; /* a bit for each that may not be free */
	struct vgpu_sample sample[VGPU_SAMPLES];
	struct vgpu_late_call late_call[VGPU_LATE_CALLS];
	struct vgpu_cost cost[VGPU_COSTS];
} __attribute__((aligned(VGPU_PAGE_BYTES)));
_Static_assert(sizeof(struct vgpu_engine) == VGPU_ENGINE_BYTES && offsetof(struct vgpu_engine, load) == 0,
	       "as process.h and load.h have it");

static inline struct vgpu_engine *vgpu_engine(const struct vgpu_process *p, uint32_t device)
{
	return (struct vgpu_engine *)vgpu_own(p, VGPU_ENGINES_AT) + device;
}

/* Whether somebody has to look at it: something is in flight or waits, or is timed. Who makes it so does it
 * before looking whether the poller sleeps (gate/poller.h). */
static inline bool vgpu_engine_is_watched(const struct vgpu_engine *engine)
{
	return __atomic_load_n(&engine->load.in_flight, __ATOMIC_SEQ_CST) != 0 ||
	       __atomic_load_n(&engine->samples_taken, __ATOMIC_SEQ_CST) != 0 ||
	       __atomic_load_n(&engine->load.waiters, __ATOMIC_SEQ_CST) != 0 ||
	       __atomic_load_n(&engine->load.batch_next, __ATOMIC_SEQ_CST) !=
		       __atomic_load_n(&engine->load.batch_first, __ATOMIC_RELAXED);
}

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/batch.h"

#include "admission/admission.h"
#include "admission/credit.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "gate/own.h"
#include "streams/groups.h"
#include "streams/semaphore.h"

/* Let go at once: how finely the share is kept, and less where others wait for the end of a turn. */
#define BATCH_NS 2000000u
#define BATCH_SHARED_NS 1000000u
/* Streams may run side by side, so each of them has its place in a batch. If they do not after all, what
 * it takes longer is owed. */
#define BATCH_ALL_NS 16000000u
#define BATCH_LAUNCHES 128u
/* Held back in all: what a program runs ahead, and less than the some 1000 launches (H200) after which
 * the driver makes the caller wait. */
#define HELD_NS 25000000u
#define HELD_LAUNCHES 384u
/* Places for groups that are left to what is not held back. */
#define GROUPS_SPARE 8u
#define NEAR_NS 20000u
/* A turn may begin at any time. */
#define LOOK_NS 200000u

static struct vgpu_batches *batches_of(const struct vgpu_process *p, uint32_t device)
{
	return &vgpu_gate(p)->batches[device];
}

static struct vgpu_batch *batch_of(struct vgpu_batches *batches, uint64_t number)
{
	return &batches->batch[number % VGPU_BATCHES];
}

static bool has_place(struct vgpu_stream *stream)
{
	bool has;

	vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
	has = stream->head - stream->tail < VGPU_GROUPS - GROUPS_SPARE;
	vgpu_mutex_unlock(&stream->mutex);
	return has;
}

static uint64_t ns_in_batch(const struct vgpu_stream *stream, uint64_t number)
{
	return stream->batch == number ? stream->batch_ns : 0;
}

/* With the mutex held: whether the launch goes with the last batch. */
static bool fits(const struct vgpu_load *load, struct vgpu_batches *batches, const struct vgpu_stream *stream,
		 uint64_t expected_ns)
{
	const struct vgpu_batch *last = batch_of(batches, load->batch_next - 1);
	uint64_t most_ns = GET(load->turns.shared) ? BATCH_SHARED_NS : BATCH_NS;

	return ns_in_batch(stream, load->batch_next) + expected_ns <=
		       (last->ns > most_ns ? last->ns : most_ns) &&
	       last->all_ns + expected_ns <= BATCH_ALL_NS && last->launches < BATCH_LAUNCHES;
}

/* With the mutex held: the number of the batch to add to, 0 when there is no place. */
static uint64_t open_batch(struct vgpu_load *load, struct vgpu_batches *batches,
			   const struct vgpu_stream *stream, uint64_t expected_ns)
{
	if (load->batch_first == load->batch_next)
		batches->held_ns = batches->held_launches = 0;
	else if (batches->held_ns + expected_ns > HELD_NS || batches->held_launches >= HELD_LAUNCHES)
		return 0;
	else if (fits(load, batches, stream, expected_ns))
		return load->batch_next;
	if (load->batch_next - load->batch_first >= VGPU_BATCHES)
		return 0;
	*batch_of(batches, load->batch_next) = (struct vgpu_batch){.begun_ns = vgpu_now_ns()};
	__atomic_store_n(&load->batch_next, load->batch_next + 1, __ATOMIC_SEQ_CST);
	return load->batch_next;
}

/* With the mutex held. Returns by how much the batch becomes longer. */
static uint64_t add_to_batch(struct vgpu_batches *batches, struct vgpu_stream *stream, uint64_t number,
			     uint64_t expected_ns, uint32_t places)
{
	struct vgpu_batch *batch = batch_of(batches, number - 1);
	uint64_t ns = ns_in_batch(stream, number) + expected_ns, more = ns > batch->ns ? ns - batch->ns : 0;

	stream->batch = number;
	stream->batch_ns = ns;
	batch->ns += more;
	batch->all_ns += expected_ns;
	batch->launches += places;
	batches->held_ns += more;
	batches->held_launches += places;
	return more;
}

/* Whatever has been launched gets its marker before any stream is made to wait for the next batch: streams
 * that wait for each other, as the default one and others do, would keep it waiting for that as well. */
static void mark_all(struct vgpu_engine *engine, CUcontext context)
{
	for (uint32_t s = 0; s < __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE); s++) {
		if (vgpu_groups_any(&engine->stream[s]) && GET(engine->stream[s].context) == context)
			vgpu_groups_end_here(engine, &engine->stream[s]);
	}
}

uint64_t vgpu_batch_join(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream,
			 CUcontext context, uint64_t expected_ns, uint32_t places, uint64_t *reserved_ns,
			 bool *first)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	struct vgpu_batches *batches = batches_of(p, device);
	uint64_t number, next;

	*first = false;
	if (GET(engine->semaphores_refused) != 0 || !vgpu_semaphore_ready(engine) || !has_place(stream))
		return 0;
	vgpu_mutex_lock(&batches->mutex, VGPU_RANK_BATCHES);
	*first = engine->load.batch_first == engine->load.batch_next;
	next = engine->load.batch_next;
	number = open_batch(&engine->load, batches, stream, expected_ns);
	if (number != 0)
		*reserved_ns = add_to_batch(batches, stream, number, expected_ns, places);
	vgpu_mutex_unlock(&batches->mutex);
	if (number > next)
		mark_all(engine, context);
	return number;
}

/* Two threads may both make the stream wait; that does no harm. If it cannot be made to, the launch
 * begins too early, once: it is counted all the same. */
void vgpu_batch_wait(struct vgpu_process *p, struct vgpu_engine *engine, struct vgpu_stream *stream,
		     CUcontext context, CUstream handle, uint64_t batch)
{
	if (GET(stream->waits_for_batch) < batch &&
	    vgpu_semaphore_wait(p, engine, VGPU_SEMAPHORE_BATCHES, (uint32_t)batch, context, handle,
				UINT64_MAX))
		SET(stream->waits_for_batch, batch);
}

/* What was let go is in flight from now on. */
static void begin_flight(struct vgpu_engine *engine, uint64_t now_ns)
{
	for (uint32_t s = 0; s < __atomic_load_n(&engine->streams_high, __ATOMIC_ACQUIRE); s++) {
		struct vgpu_stream *stream = &engine->stream[s];

		if (GET(stream->state) != VGPU_STREAM_LIVE)
			continue;
		vgpu_mutex_lock(&stream->mutex, VGPU_RANK_STREAM);
		for (uint32_t g = stream->tail; g != stream->head; g++) {
			struct vgpu_group *group = &stream->group[g % VGPU_GROUPS];

			if (group->flight == VGPU_FLIGHT_HELD &&
			    !vgpu_batch_is_held(&engine->load, group->batch))
				vgpu_groups_let_go(engine, stream, group, now_ns);
		}
		vgpu_mutex_unlock(&stream->mutex);
	}
}

/* Lets the oldest batch go, of which taken_ns have been taken off the share. */
static void open_oldest(struct vgpu_process *p, uint32_t device, uint64_t taken_ns)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	struct vgpu_batches *batches = batches_of(p, device);
	struct vgpu_batch batch;
	uint64_t number, now = vgpu_now_ns();

	vgpu_mutex_lock(&batches->mutex, VGPU_RANK_BATCHES);
	number = engine->load.batch_first + 1;
	batch = *batch_of(batches, number - 1);
	batches->held_ns -= batch.ns;
	batches->held_launches -= batch.launches;
	__atomic_store_n(&engine->load.batch_first, number, __ATOMIC_RELEASE);
	vgpu_mutex_unlock(&batches->mutex);
	/* Some more may have joined meanwhile. */
	if (batch.ns != taken_ns)
		vgpu_time_settle(p, device, now, (int64_t)batch.ns - (int64_t)taken_ns);
	begin_flight(engine, now);
	vgpu_semaphore_signal(engine, VGPU_SEMAPHORE_BATCHES, (uint32_t)number);
	vgpu_time_waited(p, device,
			 now - (batch.begun_ns > batches->opened_ns ? batch.begun_ns : batches->opened_ns));
	batches->opened_ns = now;
}

static uint64_t oldest_ns(const struct vgpu_load *load, struct vgpu_batches *batches)
{
	uint64_t ns;

	vgpu_mutex_lock(&batches->mutex, VGPU_RANK_BATCHES);
	ns = batch_of(batches, load->batch_first)->ns;
	vgpu_mutex_unlock(&batches->mutex);
	return ns;
}

static bool others_release(struct vgpu_batches *batches)
{
	return __atomic_exchange_n(&batches->releasing, 1, __ATOMIC_ACQUIRE) != 0;
}

/* Until when it is not worth it to try again. */
static uint64_t try_at(struct vgpu_process *p, uint32_t device, enum vgpu_admission admission,
		       uint64_t wait_ns)
{
	struct vgpu_batches *batches = batches_of(p, device);
	uint64_t now = vgpu_now_ns();

	/* What stalls ends some time, or is let pass. */
	if (admission != VGPU_NO_CREDIT || batches->waiting.stalled_ns != 0)
		return now + (wait_ns < LOOK_NS ? wait_ns : LOOK_NS);
	return vgpu_admission_queue(p, device, &batches->waiting, wait_ns, now);
}

/* True when the oldest batch has been let go. */
static bool release_oldest(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_load *load = vgpu_load(p, device);
	struct vgpu_batches *batches = batches_of(p, device);
	uint64_t ns = oldest_ns(load, batches), wait;
	enum vgpu_admission admission =
		vgpu_admission_try(p, device, ns, VGPU_STALL_AT_MOST_NS, &batches->waiting, &wait);

	if (admission != VGPU_ADMITTED) {
		SET(load->batch_try_ns, try_at(p, device, admission, wait));
		return false;
	}
	open_oldest(p, device, ns);
	return true;
}

uint64_t vgpu_batch_release(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_load *load = vgpu_load(p, device);
	struct vgpu_batches *batches = batches_of(p, device);
	uint64_t now, at;
	bool any = false;

	if (!vgpu_batch_pending(load))
		return 0;
	now = vgpu_now_ns();
	if ((now < GET(load->batch_try_ns) && GET(load->stalled_ns) == 0) || others_release(batches)) {
		at = GET(load->batch_try_ns);
		return at > now ? at - now : NEAR_NS;
	}
	/* Bounded: others may hold back as fast as this lets go. */
	for (uint32_t i = 0; i < VGPU_BATCHES && vgpu_batch_pending(load) && release_oldest(p, device); i++)
		any = true;
	__atomic_store_n(&batches->releasing, 0, __ATOMIC_RELEASE);
	if (any)
		vgpu_load_ring(load);
	if (!vgpu_batch_pending(load))
		return 0;
	now = vgpu_now_ns();
	at = GET(load->batch_try_ns);
	return at > now ? at - now : NEAR_NS;
}

void vgpu_batch_release_all(struct vgpu_process *p, uint32_t device)
{
	struct vgpu_load *load = vgpu_load(p, device);
	struct vgpu_batches *batches = batches_of(p, device);

	for (uint32_t i = 0; i < VGPU_BATCHES && vgpu_batch_pending(load); i++) {
		if (others_release(batches))
			return;
		if (vgpu_batch_pending(load))
			open_oldest(p, device, 0);
		__atomic_store_n(&batches->releasing, 0, __ATOMIC_RELEASE);
	}
	vgpu_load_ring(load);
}

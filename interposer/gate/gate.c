/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/gate.h"

#include "admission/admission.h"
#include "admission/credit.h"
#include "admission/turns.h"
#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "gate/batch.h"
#include "gate/poller.h"
#include "process/claims.h"
#include "process/message.h"
#include "streams/bell.h"
#include "streams/groups.h"
#include "streams/lease.h"
#include "streams/sample.h"
#include "streams/streams.h"
#include "time/cost.h"
#include "time/share.h"

#include <sys/prctl.h>

/* Of a launch that was never seen before. */
#define UNKNOWN_RESERVE_NS 50000u
/* What longer ones take differs by more than whether their stream was at work. */
#define BUSY_BELOW_NS 50000u
/* How often a launch looks whether a stream's place has become free. */
#define PLACE_LOOK_NS 1000000u

uint64_t vgpu_free_since_ticks;

static bool decide(struct vgpu_process *p)
{
	struct vgpu_gate *gate = vgpu_gate(p);
	uint64_t generation = GET(vgpu_pages.limits->generation);
	uint32_t boards = 0, gated = 0;

	vgpu_mutex_lock(&gate->mutex, VGPU_RANK_GATE);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES && d < GET(vgpu_pages.limits->device_count); d++) {
		const struct vgpu_board *board =
			vgpu_claims_open(vgpu_seat(p, d), d) ? vgpu_seat(p, d)->board : NULL;

		if (board != NULL) {
			SET(gate->sequence[boards], __atomic_load_n(&board->sequence, __ATOMIC_ACQUIRE));
			SET(gate->board[boards++], board);
			gated |= vgpu_claims_several(board);
		}
		/* vgpud keeps the shares from outside, and caps as well. */
		gated |= vgpu_time_is_capped(d) && !vgpu_claims_are_kept(board);
	}
	SET(p->gated, gated);
	__atomic_store_n(&gate->boards, boards, __ATOMIC_RELEASE);
	SET(p->gate_generation, generation + 1);
	vgpu_mutex_unlock(&gate->mutex);
	/* The first launch after a load tells of itself by this, at no cost (context/overhead.h). */
	ADD(p->gate_decided, 1);
	return gated != 0;
}

/* Whether all is as when that was decided: the limits page, and who else is on the boards of its GPUs. */
static bool is_decided(const struct vgpu_process *p)
{
	const struct vgpu_gate *gate = vgpu_gate(p);
	uint32_t boards = __atomic_load_n(&gate->boards, __ATOMIC_ACQUIRE);

	for (uint32_t b = 0; b < boards; b++) {
		if (GET(gate->board[b]->sequence) != GET(gate->sequence[b]))
			return false;
	}
	return GET(p->gate_generation) == GET(vgpu_pages.limits->generation) + 1ull;
}

bool vgpu_gate_look(struct vgpu_process *p)
{
	uint64_t now = vgpu_ticks();

	if (is_decided(p) ? GET(p->gated) != 0 : decide(p)) {
		if (GET(vgpu_free_since_ticks) != 0)
			SET(vgpu_free_since_ticks, 0);
		return true;
	}
	__atomic_store_n(&vgpu_free_since_ticks, now, __ATOMIC_SEQ_CST);
	/* Another thread may have made it forget meanwhile. */
	if (__atomic_load_n(&p->gate_generation, __ATOMIC_SEQ_CST) == 0)
		SET(vgpu_free_since_ticks, 0);
	return false;
}

void vgpu_gate_forget(struct vgpu_process *p)
{
	__atomic_store_n(&p->gate_generation, 0, __ATOMIC_SEQ_CST);
	__atomic_store_n(&vgpu_free_since_ticks, 0, __ATOMIC_SEQ_CST);
	vgpu_lease.free = 0;
}

/* bell: as it was before what is waited for was looked at. */
static void wait_ns(struct vgpu_process *p, uint32_t device, uint32_t bell, uint64_t ns)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	uint64_t since = vgpu_now_ns();
	long slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0); /* how late the kernel may be, mostly 50 µs */

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	__atomic_fetch_add(&engine->load.waiters, 1, __ATOMIC_SEQ_CST);
	vgpu_poller_wake(p);
	vgpu_futex_wait(&engine->load.bell, bell, FUTEX_PRIVATE_FLAG,
			(int64_t)(ns < VGPU_WAIT_AT_MOST_NS ? ns : VGPU_WAIT_AT_MOST_NS));
	__atomic_fetch_sub(&engine->load.waiters, 1, __ATOMIC_RELAXED);
	if (slack > 0)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0, 0, 0);
	/* The same time is counted where work is held back on the GPU. */
	if (!vgpu_batch_pending(&engine->load))
		vgpu_time_waited(p, device, vgpu_now_ns() - since);
}

/* The stream's place. Where all of them have work in flight the launch waits until one has none; not for
 * ever, since that work may be waiting for this one. NULL: then it is charged with what is expected of it. */
static struct vgpu_stream *place_of(struct vgpu_process *p, uint32_t device, CUcontext context,
				    CUstream handle)
{
	struct vgpu_stream *place;
	uint64_t since = 0, now;

	for (;;) {
		uint32_t bell = __atomic_load_n(&vgpu_engine(p, device)->load.bell, __ATOMIC_ACQUIRE);

		place = vgpu_streams_find(vgpu_engine(p, device), context, handle);
		if (place != NULL)
			return place;
		now = vgpu_now_ns();
		since = since == 0 ? now : since;
		if (now - since >= VGPU_STALL_AT_MOST_NS)
			return NULL;
		wait_ns(p, device, bell, PLACE_LOOK_NS);
	}
}

/* The GPU is busy with other streams for as long as this launch takes, or nearly: it makes no difference.
 * What it adds after all is owed; that ends when more is owed than it takes. */
static bool rides_along(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream,
			uint64_t expected_ns)
{
	uint64_t now = vgpu_now_ns();

	return stream != NULL && vgpu_load_remaining(vgpu_load(p, device), now) >= expected_ns / 4 * 3 &&
	       vgpu_time_credit(p, device, now) >= -(int64_t)expected_ns && vgpu_groups_idle(stream);
}

/* The poller looks more often from now on. */
static void no_longer_ample(struct vgpu_process *p, struct vgpu_engine *engine)
{
	SET(engine->load.waited, 1);
	if (GET(engine->load.ample) == 0)
		return;
	SET(engine->load.ample, 0);
	vgpu_poller_ring(p);
}

/* Lets the launch through, waiting for that if need be: here, or in its stream (batch.h). */
static void admit(struct vgpu_process *p, uint32_t device, struct vgpu_launch *launch,
		  const struct vgpu_cost *cost, CUcontext context, bool capturing)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	bool known = launch->expected_ns != VGPU_UNKNOWN_NS, first;
	uint64_t at_most =
		!known && GET(cost->since_sample) > 1 ? VGPU_SAME_AT_MOST_NS : VGPU_STALL_AT_MOST_NS;
	struct vgpu_waiting waiting = {0};
	enum vgpu_admission admission;
	uint64_t wait, now;

	launch->reserved_ns = known ? launch->expected_ns : UNKNOWN_RESERVE_NS;
	for (;;) {
		uint32_t bell = __atomic_load_n(&engine->load.bell, __ATOMIC_ACQUIRE);

		/* What came before goes first. */
		admission = VGPU_NOT_ITS_TURN;
		wait = vgpu_batch_release(p, device);
		if (wait == 0) {
			admission =
				vgpu_admission_try(p, device, launch->reserved_ns, at_most, &waiting, &wait);
			if (admission == VGPU_ADMITTED)
				return;
			SET(engine->load.waited, 1);
			if (known && admission != VGPU_STALLED &&
			    rides_along(p, device, launch->stream, launch->expected_ns)) {
				vgpu_admission_leave(p, device, &waiting);
				launch->reserved_ns = 0;
				return;
			}
		}
		no_longer_ample(p, engine);
		/* A thread's own stream can be marked by nobody else, and waits for the default one. */
		if (known && !capturing && launch->stream != NULL && launch->handle != CU_STREAM_PER_THREAD)
			launch->batch =
				vgpu_batch_join(p, device, launch->stream, context, launch->expected_ns,
						launch->places, &launch->reserved_ns, &first);
		if (launch->batch != 0) {
			vgpu_admission_leave(p, device, &waiting);
			if (first)
				vgpu_poller_ring(p);
			return;
		}
		if (admission == VGPU_NO_CREDIT) {
			now = vgpu_now_ns();
			wait = vgpu_admission_queue(p, device, &waiting, wait, now) - now;
		}
		wait_ns(p, device, bell, wait);
	}
}

/* What a launch will take: as it did before, else as the same kernel did in other shapes. */
static void expect(struct vgpu_launch *launch, const struct vgpu_cost *cost, const void *what)
{
	uint64_t average = GET(cost->average_ns);

	if (average == 0) {
		cost = vgpu_cost_of(launch->engine->cost,
				    vgpu_cost_key((uint64_t)(uintptr_t)what, VGPU_ANY_SHAPE));
		average = GET(cost->average_ns);
	}
	launch->expected_ns = average != 0 ? average : VGPU_UNKNOWN_NS;
	launch->unseen_ns = average != 0 ? vgpu_cost_unseen_ns(cost) : VGPU_UNKNOWN_NS;
}

/* Before the launch: what it leaves behind in front of itself. */
static void join_group(struct vgpu_process *p, struct vgpu_launch *launch, bool askable)
{
	struct vgpu_group_begun begun = {0};
	struct vgpu_group_more more = {
		.key = launch->key,
		.expected_ns = launch->expected_ns,
		.unseen_ns = launch->unseen_ns,
		.reserved_ns = launch->reserved_ns,
		.batch = launch->batch,
		/* A thread of ours cannot ask about another thread's own stream. */
		.askable = askable && launch->handle != CU_STREAM_PER_THREAD,
	};

	launch->group = launch->stream == NULL
				? NULL
				: vgpu_groups_begin(launch->engine, launch->stream, &more, &begun);
	launch->mark = begun.mark;
	if (begun.before != NULL)
		vgpu_groups_mark(launch->stream, launch->handle, begun.before);
	if (launch->batch != 0)
		vgpu_batch_wait(p, launch->engine, launch->stream, launch->context, launch->handle,
				launch->batch);
	if (begun.front)
		vgpu_groups_front(launch->stream, launch->handle, launch->group);
	if (begun.time)
		vgpu_groups_time(launch->stream, launch->handle, launch->group);
}

/* What it takes is owed. */
void vgpu_gate_late(struct vgpu_process *p, uint64_t expected_ns)
{
	struct vgpu_launch launch = {
		.engine = vgpu_lease.engine,
		.stream = vgpu_streams_find(vgpu_lease.engine, vgpu_lease.context, vgpu_lease.handle),
		.context = vgpu_lease.context,
		.handle = vgpu_lease.handle,
		.expected_ns = expected_ns,
		.unseen_ns = expected_ns,
	};

	join_group(p, &launch, true);
	if (launch.group != NULL)
		vgpu_groups_end(launch.engine, launch.stream, launch.handle, launch.group, true, launch.mark,
				expected_ns, 0);
	vgpu_poller_wake(p);
}

/* Whether the program has waited for results since the last launch. Of interest where turns may be taken. */
static bool has_waited(struct vgpu_process *p, const struct vgpu_engine *engine)
{
	return GET(vgpu_gate(p)->synchronised) != 0 && GET(engine->load.turns.neighbours) != 0;
}

/* Whether the stream is at work, which makes a difference for short ones that are timed in it. One that is
 * held back cannot be asked. */
static bool is_at_work(const struct vgpu_launch *launch, bool capturing)
{
	return !capturing && launch->stream != NULL && launch->expected_ns < BUSY_BELOW_NS &&
	       !vgpu_batch_pending(&launch->engine->load) &&
	       !vgpu_groups_drained(launch->engine, launch->stream, launch->handle);
}

/* Who could launch without it would have the whole GPU for a `ulimit -u 0`. */
static bool goes_unkept(struct vgpu_process *p)
{
	if (vgpu_pages.limits->flags & VGPU_FAIL_OPEN)
		return true;
	vgpu_message_no_thread(p);
	return false;
}

bool vgpu_gate_enter(struct vgpu_process *p, struct vgpu_launch *launch, CUstream handle, const void *what,
		     uint64_t shape, uint32_t places)
{
	vgpu_fn_cuCtxGetCurrent *get_current = VGPU_REAL(cuCtxGetCurrent);
	bool capturing = vgpu_capture_possible(p);
	CUcontext context = NULL;
	struct vgpu_cost *cost;
	CUdevice ordinal = 0;
	bool due, at_work;
	int device;

	launch->leased =
		vgpu_lease_is_at_hand(handle) && vgpu_lease_covers(p, what, shape, &launch->expected_ns);
	launch->engine = launch->leased ? vgpu_lease.engine : NULL;
	if (launch->leased || get_current == NULL || get_current(&context) != CUDA_SUCCESS || context == NULL)
		return true;
	/* Where there is one device only, the driver need not be asked which it is. What is captured is
	 * launched with its graph. */
	if ((vgpu_device_several(p) && !vgpu_device_of_stream(p, handle, &ordinal)) ||
	    (capturing && vgpu_capture_of_stream(handle)))
		return true;
	device = vgpu_device_of_ordinal(p, ordinal);
	if (device < 0)
		return true;
	if (!vgpu_poller_starts(p))
		return goes_unkept(p);
	launch->engine = vgpu_engine(p, device);
	launch->context = context;
	launch->handle = handle;
	launch->key = vgpu_cost_key((uint64_t)(uintptr_t)what, shape);
	cost = vgpu_cost_of(launch->engine->cost, launch->key);
	due = vgpu_cost_due(cost, vgpu_sample_roughly(launch->engine));
	expect(launch, cost, what);
	launch->batch = 0;
	launch->places = places;
	launch->stream = place_of(p, (uint32_t)device, context, handle);
	/* Was there nothing else to do? */
	if (has_waited(p, launch->engine) && launch->stream != NULL) {
		SET(vgpu_gate(p)->synchronised, 0);
		if (!capturing && vgpu_groups_drained(launch->engine, launch->stream, handle))
			__atomic_fetch_add(&launch->engine->load.drains, 1, __ATOMIC_RELAXED);
	}
	at_work = due && is_at_work(launch, capturing);
	admit(p, (uint32_t)device, launch, cost, context, capturing);
	if (launch->expected_ns == VGPU_UNKNOWN_NS)
		expect(launch, cost, what); /* it may have been learnt meanwhile */
	join_group(p, launch, !capturing);
	launch->sample = due ? vgpu_sample_begin(p, launch->engine, context, handle, launch->key, what,
						 launch->expected_ns, at_work)
			     : NULL;
	/* Not afterwards: the driver may wait in the call for just what the poller lets go. */
	vgpu_poller_wake(p);
	launch->begun_ns = launch->expected_ns == VGPU_UNKNOWN_NS ? vgpu_now_ns() : 0;
	return true;
}

void vgpu_gate_leave(struct vgpu_process *p, struct vgpu_launch *launch, CUresult result)
{
	if (launch->engine == NULL)
		return;
	if (launch->leased) {
		if (result == CUDA_SUCCESS && !vgpu_lease_count_one(launch->expected_ns))
			vgpu_gate_late(p, launch->expected_ns);
		return;
	}
	if (launch->sample != NULL)
		vgpu_sample_end(launch->engine, launch->sample, launch->handle, launch->batch,
				result == CUDA_SUCCESS);
	if (launch->group != NULL)
		vgpu_groups_end(launch->engine, launch->stream, launch->handle, launch->group,
				result == CUDA_SUCCESS, launch->mark, launch->expected_ns, launch->begun_ns);
	/* Threads of ours cannot mark another thread's own stream. */
	if (launch->group != NULL && launch->handle != CU_STREAM_PER_THREAD &&
	    GET(launch->engine->load.ample) != 0 && result == CUDA_SUCCESS && !vgpu_capture_possible(p))
		vgpu_groups_give_lease(launch->engine, launch->stream, launch->context, launch->handle,
				       launch->group);
}

void vgpu_gate_beside(struct vgpu_process *p, CUstream handle)
{
	vgpu_fn_cuCtxGetCurrent *get_current = VGPU_REAL(cuCtxGetCurrent);
	CUcontext context;

	if (vgpu_capture_possible(p) && vgpu_capture_of_stream(handle))
		return;
	if (get_current != NULL && get_current(&context) == CUDA_SUCCESS)
		vgpu_streams_beside(p, context, handle);
}

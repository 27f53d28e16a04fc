/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate.h"

#include "atomics.h"
#include "capture.h"
#include "claims.h"
#include "cost.h"
#include "device.h"
#include "futex.h"
#include "groups.h"
#include "growth.h"
#include "keeper.h"
#include "sample.h"
#include "share.h"
#include "streams.h"
#include "symbols.h"
#include "time_account.h"
#include "turns.h"

#include <sys/prctl.h>

/* Taken from the share at once: launches come cheaper, and what a killed process takes along is little. */
#define TAKE_NS 1000000u
/* Of a launch that was never seen before. */
#define UNKNOWN_RESERVE_NS 50000u
/* A look at the clock again after that long at most, whatever was promised. */
#define WAIT_AT_MOST_NS 50000000u
/* Work that takes longer than expected, or of which nobody knows how long it takes, holds back what
 * comes behind it, but not for ever: it may be waiting for just that. Another launch of the same is
 * less likely what it waits for. */
#define STALL_AT_MOST_NS 250000000u
#define SAME_AT_MOST_NS 5000000000u

bool vgpu_gate_decide(struct vgpu_process *p)
{
	uint64_t generation = GET(vgpu_pages.limits->generation);
	uint32_t boards = 0, gated = 0;

	vgpu_mutex_lock(&p->gate_mutex);
	for (uint32_t d = 0; d < VGPU_MAX_DEVICES && d < GET(vgpu_pages.limits->device_count); d++) {
		const struct vgpu_board *board = vgpu_claims_open(&p->engine[d].seat, d) ? p->engine[d].seat.board : NULL;

		gated |= vgpu_time_is_capped(d);
		if (board == NULL)
			continue;
		SET(p->gate_sequence[boards], GET(board->sequence));
		SET(p->gate_board[boards++], board);
		gated |= vgpu_claims_several(board);
	}
	SET(p->gated, gated);
	__atomic_store_n(&p->gate_boards, boards, __ATOMIC_RELEASE);
	SET(p->gate_generation, generation + 1);
	vgpu_mutex_unlock(&p->gate_mutex);
	vgpu_growth_launched(p);
	return gated != 0;
}

/* bell: as it was before what is waited for was looked at. */
static void wait_ns(struct vgpu_process *p, uint32_t device, uint32_t bell, uint64_t ns)
{
	struct vgpu_engine *engine = &p->engine[device];
	uint64_t since = vgpu_now_ns();
	long slack = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0); /* how late the kernel may be, mostly 50 µs */

	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	__atomic_fetch_add(&engine->waiters, 1, __ATOMIC_RELAXED);
	vgpu_keeper_wake(p);
	vgpu_futex_wait(&engine->bell, bell, FUTEX_PRIVATE_FLAG, (int64_t)(ns < WAIT_AT_MOST_NS ? ns : WAIT_AT_MOST_NS));
	__atomic_fetch_sub(&engine->waiters, 1, __ATOMIC_RELAXED);
	if (slack > 0)
		prctl(PR_SET_TIMERSLACK, (unsigned long)slack, 0, 0, 0);
	vgpu_time_waited(p, device, vgpu_now_ns() - since);
}

/* Takes credit for the launch; false when there is none, and *wait is how long there will be none. */
static bool take(struct vgpu_process *p, uint32_t device, uint64_t need_ns, uint64_t *wait)
{
	struct vgpu_engine *engine = &p->engine[device];
	uint64_t now, from = 0, got;

	if (!vgpu_time_is_capped(device) || vgpu_turns_spare(p, device))
		return true;
	if (__atomic_fetch_sub(&engine->credit_ns, (int64_t)need_ns, __ATOMIC_RELAXED) >= (int64_t)need_ns)
		return true;
	__atomic_fetch_add(&engine->credit_ns, (int64_t)need_ns, __ATOMIC_RELAXED);
	now = vgpu_now_ns();
	got = vgpu_time_take(p, device, now, need_ns, TAKE_NS, &from);
	*wait = from > now ? from - now : 1;
	if (got == 0)
		return false;
	/* Somebody else may take it away; then the next round takes more. */
	__atomic_fetch_add(&engine->credit_ns, (int64_t)got - (int64_t)need_ns, __ATOMIC_RELAXED);
	return true;
}

/* The GPU is busy with other streams for as long as this launch takes, or nearly: it makes no difference.
 * What it adds after all is owed; that ends when more is owed than it takes. */
static bool rides_along(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream, uint64_t expected_ns)
{
	uint64_t now = vgpu_now_ns();

	return stream != NULL && vgpu_engine_remaining(&p->engine[device], now) >= expected_ns / 4 * 3 &&
	       vgpu_time_credit(p, device, now) >= -(int64_t)expected_ns && vgpu_groups_idle(stream);
}

/* Waits until the launch may be done. Returns what was taken from the share for it. */
static uint64_t admit(struct vgpu_process *p, uint32_t device, struct vgpu_stream *stream, const struct vgpu_cost *cost,
		      uint64_t expected_ns)
{
	struct vgpu_engine *engine = &p->engine[device];
	uint64_t need = expected_ns != VGPU_UNKNOWN_NS ? expected_ns : UNKNOWN_RESERVE_NS;
	uint64_t at_most = expected_ns == VGPU_UNKNOWN_NS && GET(cost->since_sample) > 1 ? SAME_AT_MOST_NS : STALL_AT_MOST_NS;
	uint64_t stalled_since = 0, wait;

	for (;;) {
		uint32_t bell = __atomic_load_n(&engine->bell, __ATOMIC_ACQUIRE);

		if (GET(engine->seat.may_until_ns) != UINT64_MAX && !vgpu_turns_may_launch(engine, vgpu_now_ns())) {
			wait_ns(p, device, bell, WAIT_AT_MOST_NS);
			continue;
		}
		wait = vgpu_turns_ahead(engine, vgpu_now_ns());
		if (wait != 0) {
			wait_ns(p, device, bell, wait);
			continue;
		}
		if (GET(engine->stalled_ns) != 0 || GET(engine->unknown) != 0) {
			uint64_t now = vgpu_now_ns();

			stalled_since = stalled_since == 0 ? now : stalled_since;
			if (now - stalled_since < at_most) {
				wait_ns(p, device, bell, at_most - (now - stalled_since));
				continue;
			}
		}
		if (take(p, device, need, &wait))
			return need;
		if (expected_ns != VGPU_UNKNOWN_NS && rides_along(p, device, stream, expected_ns))
			return 0;
		wait_ns(p, device, bell, wait);
	}
}

/* What a launch will take: as it did before, else as the same kernel did in other shapes. */
static uint64_t expected_of(struct vgpu_engine *engine, const struct vgpu_cost *cost, const void *what)
{
	uint64_t average = GET(cost->average_ns);

	if (average == 0)
		average = GET(vgpu_cost_of(engine->cost, vgpu_cost_key((uint64_t)(uintptr_t)what, VGPU_ANY_SHAPE))->average_ns);
	return average != 0 ? average : VGPU_UNKNOWN_NS;
}

void vgpu_gate_enter(struct vgpu_process *p, struct vgpu_launch *launch, CUstream handle, const void *what, uint64_t shape)
{
	vgpu_fn_cuCtxGetCurrent *get_current = VGPU_REAL(cuCtxGetCurrent);
	bool capturing = vgpu_capture_possible(p);
	CUcontext context = NULL;
	struct vgpu_cost *cost;
	uint64_t key, expected, reserved;
	CUdevice ordinal = 0;
	bool due, front;
	int device;

	launch->engine = NULL;
	/* Where there is one device only, the driver need not be asked which it is. */
	if (get_current == NULL || get_current(&context) != CUDA_SUCCESS || context == NULL ||
	    (vgpu_device_several(p) && !vgpu_device_of_stream(p, handle, &ordinal)))
		return;
	/* What is captured is launched with its graph. */
	if (capturing && vgpu_capture_of_stream(handle))
		return;
	device = vgpu_device_of_ordinal(p, ordinal);
	if (device < 0 || !vgpu_keeper_starts(p))
		return;
	launch->engine = &p->engine[device];
	launch->handle = handle;
	key = vgpu_cost_key((uint64_t)(uintptr_t)what, shape);
	cost = vgpu_cost_of(launch->engine->cost, key);
	due = vgpu_cost_due(cost);
	expected = expected_of(launch->engine, cost, what);
	launch->stream = vgpu_streams_find(launch->engine, context, handle);
	/* It has waited for results; was there nothing else to do? Asked only where turns may be taken. */
	if (GET(p->synchronised) != 0 && launch->stream != NULL) {
		SET(p->synchronised, 0);
		if (GET(launch->engine->seat.count) != 0 && !capturing && vgpu_groups_drained(launch->stream, handle))
			__atomic_fetch_add(&launch->engine->drains, 1, __ATOMIC_RELAXED);
	}
	reserved = admit(p, (uint32_t)device, launch->stream, cost, expected);
	if (expected == VGPU_UNKNOWN_NS)
		expected = expected_of(launch->engine, cost, what); /* it may have been learnt meanwhile */
	launch->expected_ns = expected;
	/* A thread of ours cannot ask about another thread's own stream. */
	launch->group = launch->stream == NULL ? NULL : vgpu_groups_begin(launch->engine, launch->stream, key, expected, reserved,
				!capturing && handle != CU_STREAM_PER_THREAD, &launch->mark, &front);
	if (launch->group != NULL && front)
		vgpu_groups_front(launch->stream, handle, launch->group);
	launch->sample = due ? vgpu_sample_begin(launch->engine, context, handle, key, what, expected) : NULL;
}

void vgpu_gate_leave(struct vgpu_process *p, struct vgpu_launch *launch, CUresult result)
{
	if (launch->engine == NULL)
		return;
	if (launch->sample != NULL)
		vgpu_sample_end(launch->engine, launch->sample, launch->handle, result == CUDA_SUCCESS);
	if (launch->group != NULL)
		vgpu_groups_end(launch->stream, launch->handle, launch->group, result == CUDA_SUCCESS, launch->mark,
				 launch->expected_ns);
	vgpu_keeper_wake(p);
}

void vgpu_gate_beside(struct vgpu_process *p, CUstream handle)
{
	vgpu_fn_cuCtxGetCurrent *get_current = VGPU_REAL(cuCtxGetCurrent);
	CUcontext context;

	if (get_current != NULL && get_current(&context) == CUDA_SUCCESS)
		vgpu_streams_beside(p, context, handle);
}

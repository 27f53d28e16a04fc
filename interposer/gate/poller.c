/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/poller.h"

#include "admission/credit.h"
#include "api/symbols.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "base/thread.h"
#include "gate/own.h"
#include "gate/release.h"
#include "gate/watchdog.h"
#include "streams/bell.h"
#include "streams/sample.h"
#include "streams/completion.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* How finely completion is seen. Each look costs some 5 µs of a core. */
#define TICK_NS VGPU_LOOKS_NS
#define TICK_AT_MOST_NS 1000000u
#define TICK_SELDOM_NS 2000000u
#define TICK_RARE_NS 7000000u
/* Without anything in flight it goes on looking for a while: waking it costs the program more. */
#define LINGER_NS 20000000u
/* The share is ample when no launch had to wait for so long. */
#define AMPLE_NS 100000000u
/* The least that Linux takes for how long a thread runs at once. */
#define SLICE_NS 100000u
/* So much of a first launch may not have been seen. */
#define UNSURE_NS 200000u

static void done(struct vgpu_process *p, uint32_t device, const struct vgpu_group *group,
		 const struct vgpu_busy *busy, uint64_t now_ns)
{
	uint64_t used = vgpu_time_used(p, device, busy);

	vgpu_time_settle(p, device, now_ns, (int64_t)used - (int64_t)(group->reserved_ns - group->paid_ns));
	/* When two processes are at work at once, who is seen first is charged for both. The job loses
	 * nothing by it. */
	if (used < busy->fresh.ns && used < group->expected_ns && group->expected_ns != VGPU_UNKNOWN_NS)
		vgpu_time_settle_step(
			p, device, now_ns,
			(busy->fresh.ns < group->expected_ns ? busy->fresh.ns : group->expected_ns) - used);
	/* The first launch of a kernel is not timed on the GPU; this will do until the next one is, unless
	 * its thread was away in between: what the kernel did meanwhile was not seen, and a whole queue could
	 * pass for as little. */
	if (group->only_key != 0 && group->expected_ns == VGPU_UNKNOWN_NS && group->launches == 1 &&
	    group->unsure_ns <= UNSURE_NS)
		vgpu_cost_guess(vgpu_engine(p, device)->cost, group->only_key,
				busy->busy_ns + group->unsure_ns);
}

/* Credit that was taken and is not used goes back. */
static void give_back(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	int64_t credit = __atomic_exchange_n(&vgpu_engine(p, device)->load.credit_ns, 0, __ATOMIC_RELAXED);

	if (credit != 0)
		vgpu_time_settle(p, device, now_ns, -credit);
}

/* Whether launches may be let pass with less ado (streams/lease.h). */
static void judge_ample(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	bool waited = __atomic_exchange_n(&engine->load.waited, 0, __ATOMIC_RELAXED) != 0;

	if (waited || vgpu_load_waits(&engine->load) || engine->waited_ns == 0)
		engine->waited_ns = now_ns;
	/* What kernels took before says little of those that take longer: they are looked at closely then. */
	SET(engine->load.ample,
	    now_ns - engine->waited_ns > AMPLE_NS && now_ns - engine->longer_ns > AMPLE_NS &&
		    vgpu_time_is_capped(device) && GET(engine->load.turns.may_until_ns) == UINT64_MAX);
}

/* Each look takes a program on one core 20 µs (H200), most of it for going to another thread and back. */
static uint64_t seldom_ns(const struct vgpu_engine *engine)
{
	bool alone = GET(engine->load.turns.neighbours) == 0 && GET(vgpu_pages.ledger->slots_high) <= 1;

	return alone && !vgpu_samples_wait(engine) ? TICK_RARE_NS : TICK_SELDOM_NS;
}

/* How soon something is to be seen that nobody rings for. */
static uint64_t until_next(struct vgpu_engine *engine, uint64_t now_ns)
{
	uint64_t expected = GET(engine->load.expected_ns);
	bool timed = vgpu_batch_pending(&engine->load) ||
		     (GET(engine->load.in_flight) != 0 && GET(engine->load.loose) == 0);

	/* Where the share is ample nobody waits; but not in step with a program that does the same every so
	 * often: it would always be seen doing the same. Nor does anybody else look at what this process says
	 * then, if there is nobody. */
	if (GET(engine->load.ample) != 0)
		return seldom_ns(engine) - now_ns % (seldom_ns(engine) / 4);
	/* Nobody can tell beforehand what they take. */
	if (GET(engine->load.loose) != 0 && now_ns - engine->longer_ns < AMPLE_NS)
		return TICK_NS;
	/* What was held back is timed on the GPU, and nothing else is launched as long as more of it is; who
	 * waits on the host looks for itself when there should be credit. */
	if (timed && GET(engine->load.unknown) == 0)
		return TICK_SELDOM_NS;
	if (GET(engine->load.in_flight) == 0 || expected > TICK_AT_MOST_NS)
		return TICK_AT_MOST_NS;
	return expected < TICK_NS ? TICK_NS : expected;
}

/* Looks at one device. Returns how long until the next look, 0 when there is nothing to look at. */
static uint64_t poll_device(struct vgpu_process *p, uint32_t device, struct vgpu_elsewhere *elsewhere)
{
	struct vgpu_engine *engine = vgpu_engine(p, device);
	uint64_t now = vgpu_now_ns(), tick, next, held;
	uint32_t before = GET(engine->load.in_flight);
	bool stalled = GET(engine->load.stalled_ns) != 0;
	bool samples;

	judge_ample(p, device, now);
	vgpu_samples_let_go(engine, now);
	SET(vgpu_gate(p)->poller_queries_ns, now);
	vgpu_completion_poll(p, device, done);
	samples = vgpu_samples_look(engine);
	SET(vgpu_gate(p)->poller_queries_ns, 0);
	next = vgpu_release_device(p, device,
				   GET(engine->load.in_flight) != before ||
					   (stalled && GET(engine->load.stalled_ns) == 0),
				   elsewhere, &held);
	now = vgpu_now_ns();
	if (GET(engine->load.in_flight) == 0 && !vgpu_load_waits(&engine->load)) {
		give_back(p, device, now);
		return samples ? TICK_NS : next;
	}
	tick = until_next(engine, now);
	/* One look does for what is in flight and for what may go then. */
	if (tick == TICK_SELDOM_NS && held > tick && held < tick / 2 * 3)
		tick = held;
	return next != 0 && next < tick ? next : tick;
}

static void sleep_until_rung(struct vgpu_process *p, int64_t ns, const struct vgpu_elsewhere *elsewhere)
{
	struct vgpu_streams *streams = vgpu_streams(p);
	uint32_t bell = GET(streams->poller_bell);
	bool for_long = ns < 0;

	/* Somebody else's turn: the page is shared between processes and never looked into here. */
	if (elsewhere->bell != NULL && ns > 0) {
		vgpu_futex_wait(elsewhere->bell, elsewhere->rung, 0, ns);
		return;
	}
	if (for_long)
		__atomic_store_n(&streams->poller_sleeps, 1, __ATOMIC_SEQ_CST);
	else if (ns > TICK_AT_MOST_NS)
		__atomic_store_n(&streams->poller_until_ns, vgpu_now_ns() + (uint64_t)ns, __ATOMIC_SEQ_CST);
	/* Whoever launched before that store did not ring. */
	for (uint32_t d = 0; ns < 0 && d < VGPU_MAX_DEVICES; d++)
		ns = vgpu_engine_is_watched(vgpu_engine(p, d)) ? (int64_t)TICK_NS : ns;
	for (uint32_t d = 0; ns > TICK_SELDOM_NS && d < VGPU_MAX_DEVICES; d++)
		ns = __atomic_load_n(&vgpu_engine(p, d)->samples_taken, __ATOMIC_SEQ_CST) != 0
			     ? TICK_SELDOM_NS
			     : ns;
	vgpu_futex_wait(&streams->poller_bell, bell, FUTEX_PRIVATE_FLAG, ns);
	SET(streams->poller_until_ns, 0);
	if (for_long) {
		__atomic_store_n(&streams->poller_sleeps, 0, __ATOMIC_SEQ_CST);
		vgpu_futex_wake(&streams->poller_sleeps, 1, FUTEX_PRIVATE_FLAG);
	}
}

/* As sched_setattr(2) has it in its first version. */
struct schedule {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

/* It runs for microseconds and ought not to wait for threads that run for milliseconds: from Linux 6.12 on a
 * thread that asks for less at once comes before them, without having more in all. Before, this says
 * nothing. */
static void be_prompt(void)
{
	struct schedule schedule = {0};

	if (syscall(SYS_sched_getattr, 0, &schedule, sizeof(schedule), 0) != 0 ||
	    schedule.policy != SCHED_OTHER)
		return;
	schedule.size = sizeof(schedule);
	schedule.flags = 0;
	schedule.runtime_ns = SLICE_NS;
	syscall(SYS_sched_setattr, 0, &schedule, 0);
}

static void *run(void *process)
{
	struct vgpu_process *p = process;
	vgpu_fn_cuThreadExchangeStreamCaptureMode *exchange;
	int relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	uint64_t busy_ns = vgpu_now_ns();

	prctl(PR_SET_NAME, "vgpu-poller", 0, 0, 0);
	prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
	be_prompt();
	/* Otherwise a look would break a capture that some other thread has begun. */
	exchange = VGPU_REAL(cuThreadExchangeStreamCaptureMode);
	if (exchange != NULL)
		exchange(&relaxed);
	SET(vgpu_gate(p)->poller_queries_ns, 0);
	for (;;) {
		struct vgpu_elsewhere elsewhere = {0};
		uint64_t next = 0, now;

		for (uint32_t d = 0; d < VGPU_MAX_DEVICES && d < GET(vgpu_pages.limits->device_count); d++) {
			uint64_t one = poll_device(p, d, &elsewhere);

			next = one != 0 && (next == 0 || one < next) ? one : next;
		}
		now = vgpu_now_ns();
		if (next != 0)
			busy_ns = now;
		else if (now - busy_ns < LINGER_NS)
			next = TICK_AT_MOST_NS;
		sleep_until_rung(p, next != 0 ? (int64_t)next : -1, &elsewhere);
	}
	return NULL;
}

/* The one that looks after the other comes first: without the poller it has nothing to do. */
static bool start_both(struct vgpu_process *p)
{
	struct vgpu_gate *gate = vgpu_gate(p);

	if (gate->watchdog_started == 0)
		gate->watchdog_started = vgpu_watchdog_starts(p);
	/* What the poller does first is a question, too. */
	SET(gate->poller_queries_ns, vgpu_now_ns());
	if (gate->watchdog_started != 0 && vgpu_thread_start(run, p))
		return true;
	SET(gate->poller_queries_ns, 0);
	return false;
}

bool vgpu_poller_starts(struct vgpu_process *p)
{
	struct vgpu_gate *gate = vgpu_gate(p);
	uint32_t state = __atomic_load_n(&gate->poller, __ATOMIC_ACQUIRE);

	if (state == VGPU_POLLER_STARTED)
		return true;
	if (state == VGPU_POLLER_NONE &&
	    __atomic_compare_exchange_n(&gate->poller, &state, VGPU_POLLER_STARTING, 0, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE)) {
		state = start_both(p) ? VGPU_POLLER_STARTED : VGPU_POLLER_NONE;
		__atomic_store_n(&gate->poller, state, __ATOMIC_RELEASE);
		vgpu_futex_wake(&gate->poller, INT32_MAX, FUTEX_PRIVATE_FLAG);
		return state == VGPU_POLLER_STARTED;
	}
	/* Another thread starts it. */
	while (state == VGPU_POLLER_STARTING) {
		vgpu_futex_wait(&gate->poller, VGPU_POLLER_STARTING, FUTEX_PRIVATE_FLAG, -1);
		state = __atomic_load_n(&gate->poller, __ATOMIC_ACQUIRE);
	}
	return state == VGPU_POLLER_STARTED;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which place a stream takes, and what becomes of a group where the driver refuses an event, where two
 * threads ask about it at once, and while a launch waits. No case judges a clock. */
#include "busy.h"
#include "gate/own.h"

static struct step step;
static CUfunction function;
static CUstream stream[VGPU_GATE_STREAMS + 1];

/* One launch of 4 ms is charged for what it took once the program has waited, and not for a guess. */
static void check_is_timed(CUstream into)
{
	owe(&step, 0);
	busy(function, 4000, into);
	begin_to_count(&step);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_WITHIN(charged_ns(&step), 3900000, 100 * MS);
	owe(&step, 0);
}

static void the_first_launch_ever_is_timed(void)
{
	step = step_with_gate(1, 90);
	cuda_begin(0);
	function = busy_kernel();
	check_is_timed(NULL);
	/* The next one has its place and its events. */
	check_is_timed(NULL);
	CHECK_IS(asked("cuEventCreate"), 2);
}

/* A launch in a group is recorded before and behind. */
static void check_records(CUstream into, unsigned us, unsigned want)
{
	unsigned before = asked("cuEventRecord");

	busy(function, us, into);
	CHECK_IS(asked("cuEventRecord") - before, want);
}

/* The place of a context that has ended is free, and one that is idle is taken where none is; never that of a
 * stream with work in flight. */
static void a_stream_takes_what_is_free_and_then_what_is_idle(void)
{
	CUcontext context;

	step = step_with_gate(2, 90);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK_IS(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	function = busy_kernel();
	busy(function, 10, NULL);
	CHECK_IS(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	CHECK_IS(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	function = busy_kernel();
	for (int s = 0; s <= VGPU_GATE_STREAMS; s++)
		CHECK_IS(cuStreamCreate(&stream[s], 1), CUDA_SUCCESS);
	/* They come behind a long one, as the simulated GPU does one thing at a time. */
	check_records(stream[0], 1000000, 2);
	for (int s = 1; s < VGPU_GATE_STREAMS; s++)
		check_records(stream[s], 10, 2);
	check_records(stream[VGPU_GATE_STREAMS], 10, 0);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	check_is_timed(stream[VGPU_GATE_STREAMS]);
}

/* How many launches a group has tells what one took last: it begins once. */
static void short_launches_share_a_group(void)
{
	unsigned before;

	step = step_with_gate(6, 90);
	cuda_begin(0);
	function = busy_kernel();
	busy(function, 10, NULL);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	before = asked("cuEventRecord");
	busy(function, 500000, NULL);
	for (int i = 0; i < 9; i++)
		busy(function, 10, NULL);
	CHECK_IS(asked("cuEventRecord") - before, 1 + 10);
}

/* With work of another one in flight, which is timed as before. */
static void the_end_of_a_context_touches_no_other(void)
{
	CUcontext first, second;

	step = step_with_gate(7, 90);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	CHECK_IS(cuCtxCreate_v2(&first, 0, 0), CUDA_SUCCESS);
	busy(busy_kernel(), 100, NULL);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_IS(cuCtxCreate_v2(&second, 0, 0), CUDA_SUCCESS);
	function = busy_kernel();
	owe(&step, 0);
	busy(function, 4000, NULL);
	begin_to_count(&step);
	CHECK_IS(cuCtxDestroy_v2(first), CUDA_SUCCESS);
	CHECK_IS(cuCtxSetCurrent(second), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_WITHIN(charged_ns(&step), 3900000, 100 * MS);
}

/* What stands in the ledger for it holds nobody. */
static void a_step_without_a_cap_is_not_held(void)
{
	uint64_t since;

	step = step_with_gate(8, 50);
	step.limits->device[0].sm_percent = 0;
	cuda_begin(0);
	function = busy_kernel();
	since = now_ns();
	__atomic_store_n(&step.ledger->step[0].share_free_at_ns[0], since + 25000 * MS, __ATOMIC_RELAXED);
	busy(function, 10, NULL);
	CHECK(now_ns() - since < 10000 * MS);
}

static void fail_the_next(void)
{
	CHECK_IS(cuSimFailNext(1), CUDA_SUCCESS);
}

static void without_the_second_event_a_launch_is_waited_for(void)
{
	step = step_with_gate(3, 50);
	cuda_begin(0);
	function = busy_kernel();
	CHECK_IS(cuSimWithin("cuEventCreate", fail_the_next), CUDA_SUCCESS);
	busy(function, 20000, NULL);
	CHECK_IS(cuStreamQuery(NULL), CUDA_SUCCESS);
	CHECK(owed_until(&step) > 0);
	check_is_timed(NULL);
}

/* The one begins another group meanwhile, which the other must leave alone. */
static void launch_meanwhile(void)
{
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	owe(&step, 0);
	busy(function, 4000, NULL);
	begin_to_count(&step);
}

static void who_asks_about_a_group_does_so_alone(void)
{
	step = step_with_gate(4, 50);
	cuda_begin(0);
	function = busy_kernel();
	busy(function, 2000, NULL);
	CHECK_IS(cuSimWithin("cuEventQuery", launch_meanwhile), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_WITHIN(charged_ns(&step), 5900000, 100 * MS);
}

/* The driver is asked a few times in a millisecond, not as fast as one can. */
static void who_waits_sleeps(void)
{
	uint64_t since;
	unsigned before;

	step = step_with_gate(5, 50);
	cuda_begin(0);
	function = busy_kernel();
	busy(function, 200000, NULL);
	since = now_ns();
	before = asked("cuEventQuery");
	owe(&step, since + 100 * MS);
	busy(function, 10, NULL);
	CHECK(asked("cuEventQuery") - before <= 10 + (now_ns() - since) / (MS / 4));
	CHECK(asked("cuEventQuery") - before > 1);
}

int main(void)
{
	gpus(0);
	CASE(the_first_launch_ever_is_timed);
	CASE(a_stream_takes_what_is_free_and_then_what_is_idle);
	CASE(short_launches_share_a_group);
	CASE(the_end_of_a_context_touches_no_other);
	CASE(a_step_without_a_cap_is_not_held);
	CASE(without_the_second_event_a_launch_is_waited_for);
	CASE(who_asks_about_a_group_does_so_alone);
	CASE(who_waits_sleeps);
	return summary();
}

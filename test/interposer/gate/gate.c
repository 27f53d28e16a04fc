/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Who is held where vgpud is refused, and for how long, with kernels of known length on the simulated
 * driver. */
#include "busy.h"

#include <pthread.h>
#include <sched.h>

/* ---- the cap ---- */

static void a_slice_has_its_cap(void)
{
	static const unsigned caps[] = {10, 90};
	struct step step = step_with_gate(1, 50);
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	for (unsigned i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
		step_cap(&step, caps[i]);
		check_cap(&step, function, 1000, NULL, 0, caps[i] * 10);
	}
	step_cap(&step, 25);
	check_cap(&step, function, 100, NULL, 0, 250);
	check_cap(&step, function, 9000, NULL, 0, 250);
}

/* The job's cap is that of all its steps together. */
static void the_smaller_cap_of_job_and_step_holds(void)
{
	struct step step = step_with_gate(2, 80);
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	step.limits->device[0].job_sm_percent = 25;
	check_cap(&step, function, 1000, NULL, 0, 250);
	step.limits->device[0].job_sm_percent = 0;
	step.limits->device[0].sm_percent = 40;
	use_up(&step, 0);
	owe(&step, 0);
	CHECK_WITHIN(keep_busy(function, 1000, NULL, 0, 400 * MS), 300, 430);
	CHECK_IS(owed_until(&step), 0);
}

static void each_gpu_has_its_own_cap(void)
{
	struct step step = step_with_gate(3, 25);
	CUfunction function;

	step.limits->device[1] = step.limits->device[0];
	strcpy(step.limits->device[1].uuid, UUID1);
	step.limits->device[1].sm_percent = step.limits->device[1].job_sm_percent = 60;
	step.limits->device_count = 2;
	cuda_begin(1);
	function = busy_kernel();
	use_up(&step, 1);
	CHECK_WITHIN(keep_busy(function, 1000, NULL, 0, 400 * MS), 500, 630);
	CHECK_IS(owed_until(&step), 0);
	cuda_begin(0);
	check_cap(&step, busy_kernel(), 1000, NULL, 0, 250);
	/* One that vgpud holds is not held here. */
	step.limits->device[1].gated = 0;
	__atomic_store_n(&step.ledger->share_free_at_ns[1], now_ns() + 5000 * MS, __ATOMIC_RELAXED);
	cuda_begin(1);
	CHECK(keep_busy(busy_kernel(), 200, NULL, 0, 100 * MS) > 700);
}

static void several_streams_have_one_cap(void)
{
	struct step step = step_with_gate(4, 30);
	CUstream stream[4];
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	for (unsigned i = 0; i < 4; i++)
		CHECK_IS(cuStreamCreate(&stream[i], 1), CUDA_SUCCESS);
	check_cap(&step, function, 1000, stream, 4, 300);
}

static uint32_t launching;

/* ---- who is not held ---- */

static void who_is_not_gated_goes_straight(void)
{
	struct step step = step_with_cap(5, 10);
	CUfunction function;
	unsigned got = 0, asks;

	cuda_begin(0);
	function = busy_kernel();
	busy(function, 10, NULL);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	for (int try = 0; try < 20 && got <= 900; try++)
		got = keep_busy(function, 200, NULL, 0, 100 * MS);
	CHECK(got > 900);
	asks = asked("cuCtxGetCurrent");
	for (int i = 0; i < 100; i++)
		busy(function, 10, NULL);
	CHECK_IS(asked("cuCtxGetCurrent"), asks);
	CHECK_IS(asked("cuEventCreate"), 0);
	CHECK_IS(asked("cuEventQuery"), 0);
	CHECK_IS(owed_until(&step), 0);
}

static void no_cap_is_not_held(void)
{
	struct step step = step_with_gate(6, 0);
	CUfunction function;
	unsigned got = 0;

	cuda_begin(0);
	function = busy_kernel();
	owe(&step, now_ns() + 20000 * MS);
	for (int try = 0; try < 20 && got <= 900; try++)
		got = keep_busy(function, 200, NULL, 0, 100 * MS);
	CHECK(got > 900);
	step_cap(&step, 100);
	CHECK(keep_busy(function, 200, NULL, 0, 100 * MS) > 700);
	CHECK_IS(asked("cuEventCreate"), 0);
}

/* 2 ms in 10 are 20 %. */
static void below_its_cap_nobody_waits(void)
{
	struct step step = step_with_gate(7, 40);
	unsigned late = 0;
	CUfunction function;
	uint64_t since;

	cuda_begin(0);
	function = busy_kernel();
	for (int i = 0; i < 60; i++) {
		since = now_ns();
		busy(function, 2000, NULL);
		late += now_ns() - since > 1 * MS;
		if (i % 2 == 0)
			CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
		while (now_ns() - since < 10 * MS)
			sched_yield();
	}
	CHECK(late < 5);
	CHECK(owed_until(&step) > 0);
}

/* ---- what is charged ---- */

static void what_it_took_is_charged_when_the_program_has_waited(void)
{
	struct step step = step_with_gate(8, 50);
	uint64_t owed, since = now_ns();
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	busy(function, 100, NULL);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	busy(function, 20000, NULL);
	owe(&step, owed = now_ns() + 5000 * MS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_WITHIN(owed_until(&step) - owed, 39 * MS, 45 * MS);
	CHECK(of_step_until(&step) > since - 250 * MS);
}

/* Launches of one group that the program makes far from each other. */
static void a_pause_is_not_charged(void)
{
	struct step step = step_with_gate(9, 50);
	uint64_t owed;
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	for (int i = 0; i < 3; i++) {
		busy(function, 100, NULL);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	}
	busy(function, 100, NULL);
	usleep(50000);
	busy(function, 100, NULL);
	owe(&step, owed = now_ns() + 5000 * MS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_WITHIN(owed_until(&step) - owed, 180000, 40 * MS);
}

/* ---- which calls ---- */

/* A launch waits until what was used is paid for. */
#define CHECK_HELD(call)                                                                              \
	do {                                                                                          \
		uint64_t until_ = now_ns() + 20 * MS;                                                 \
		owe(&step, until_);                                                                   \
		CHECK_IS(call, CUDA_SUCCESS);                                                         \
		if (now_ns() < until_)                                                                \
			fprintf(stderr, "%s:%d: %s did not wait\n", __FILE__, __LINE__, #call), failures++; \
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);                                           \
	} while (0)

static void every_launch_is_held(void)
{
	struct step step = step_with_gate(10, 50);
	unsigned us = 10;
	void *params[] = {&us};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
	CUDA_LAUNCH_PARAMS list[] = {{NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params}};
	CUfunction function, plain = NULL;
	CUmodule module;
	CUgraph graph;
	CUgraphExec exec;
	CUstream stream;

	cuda_begin(0);
	function = list[0].function = busy_kernel();
	CHECK(cuModuleLoadData(&module, ".visible .entry plain()") == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&plain, module, "plain") == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
	CHECK(cuGraphCreate(&graph, 0) == CUDA_SUCCESS &&
	      cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
	CHECK_HELD(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	CHECK_HELD(cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CHECK_HELD(cuLaunchKernelEx(&config, function, params, NULL));
	CHECK_HELD(cuLaunchKernelEx_ptsz(&config, function, params, NULL));
	CHECK_HELD(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params));
	CHECK_HELD(cuLaunchCooperativeKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, params));
	CHECK_HELD(cuLaunchCooperativeKernelMultiDevice(list, 1, 0));
	CHECK_HELD(cuLaunch(plain));
	CHECK_HELD(cuLaunchGrid(plain, 1, 1));
	CHECK_HELD(cuLaunchGridAsync(plain, 1, 1, stream));
	CHECK_HELD(cuGraphLaunch(exec, stream));
	CHECK_HELD(cuGraphLaunch_ptsz(exec, NULL));
	CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
}

static void what_is_captured_goes_into_its_graph(void)
{
	struct step step = step_with_gate(11, 25);
	CUfunction function;
	CUgraph graph = NULL;
	CUgraphExec exec;
	CUstream stream, other;
	uint64_t since;
	size_t nodes = 99;

	cuda_begin(0);
	function = busy_kernel();
	CHECK_IS(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	CHECK_IS(cuStreamCreate(&other, 1), CUDA_SUCCESS);
	busy(function, 10, stream);
	owe(&step, now_ns() + 10000 * MS);
	since = now_ns();
	CHECK_IS(cuStreamBeginCapture_v2(stream, 0), CUDA_SUCCESS);
	busy(function, 10, stream);
	CHECK(now_ns() - since < 5000 * MS);
	/* What another stream launches meanwhile is held, and asks for nothing that would end the capture. */
	for (int i = 0; i < 4; i++) {
		owe(&step, since = now_ns() + 10 * MS);
		busy(function, 10, other);
		CHECK(now_ns() >= since);
	}
	CHECK_IS(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
	CHECK_IS(cuGraphGetNodes(graph, NULL, &nodes), CUDA_SUCCESS);
	CHECK(nodes <= 1);
	CHECK_IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	CHECK_HELD(cuGraphLaunch(exec, stream));
}

/* ---- while it runs ---- */

static void the_gate_comes_and_goes_while_it_runs(void)
{
	struct step step = step_with_cap(12, 20);
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	for (int i = 0; i < 2; i++) {
		CHECK(keep_busy(function, 200, NULL, 0, 100 * MS) > 700);
		step_gate(&step, true);
		check_cap(&step, function, 1000, NULL, 0, 200);
		step_gate(&step, false);
	}
	step_gate(&step, true);
	check_cap(&step, function, 1000, NULL, 0, 200);
	step_cap(&step, 60);
	check_cap(&step, function, 1000, NULL, 0, 600);
}

static void *launch_once(void *context)
{
	CHECK_IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
	busy(busy_kernel(), 10, NULL);
	__atomic_store_n(&launching, 0, __ATOMIC_RELEASE);
	return NULL;
}

/* It has waited for a while, and would for many seconds more. */
static void who_waits_goes_on_as_soon_as_there_is_no_cap(void)
{
	struct step step = step_with_gate(13, 20);
	CUcontext context;
	pthread_t thread;
	uint64_t since;

	cuda_begin(0);
	CHECK_IS(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	for (int i = 0; i < 2; i++) {
		owe(&step, now_ns() + 25000 * MS);
		__atomic_store_n(&launching, 1, __ATOMIC_RELAXED);
		CHECK_IS(pthread_create(&thread, NULL, launch_once, context), 0);
		usleep(100000);
		CHECK_IS(__atomic_load_n(&launching, __ATOMIC_ACQUIRE), 1);
		if (i == 0)
			step_cap(&step, 0);
		else
			step_gate(&step, false);
		since = now_ns();
		CHECK_IS(pthread_join(thread, NULL), 0);
		CHECK(now_ns() - since < 2000 * MS * PATIENCE);
		step_cap(&step, 20);
	}
}

static void *spoil(void *ledger)
{
	uint64_t *word = ((struct vgpu_ledger *)ledger)->share_free_at_ns, at = 1;

	while (__atomic_load_n(&launching, __ATOMIC_RELAXED)) {
		at = at * 6364136223846793005u + 1442695040888963407u;
		__atomic_store_n(word, at >> (at >> 60), __ATOMIC_RELAXED);
		sched_yield();
	}
	return NULL;
}

/* The ledger is the job's own to write. */
static void garbage_in_the_ledger_goes_by(void)
{
	struct step step = step_with_gate(14, 25);
	CUfunction function;
	pthread_t thread;
	uint64_t since;

	cuda_begin(0);
	function = busy_kernel();
	__atomic_store_n(&launching, 1, __ATOMIC_RELAXED);
	CHECK_IS(pthread_create(&thread, NULL, spoil, step.ledger), 0);
	keep_busy(function, 1000, NULL, 0, 300 * MS);
	__atomic_store_n(&launching, 0, __ATOMIC_RELAXED);
	CHECK_IS(pthread_join(thread, NULL), 0);
	owe(&step, UINT64_MAX);
	since = now_ns();
	busy(function, 10, NULL);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK(now_ns() - since < 5000 * MS);
	check_cap(&step, function, 1000, NULL, 0, 250);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(a_slice_has_its_cap);
	CASE_OF_TIME(the_smaller_cap_of_job_and_step_holds);
	CASE_OF_TIME(each_gpu_has_its_own_cap);
	CASE_OF_TIME(several_streams_have_one_cap);
	CASE_OF_TIME(who_is_not_gated_goes_straight);
	CASE_OF_TIME(no_cap_is_not_held);
	CASE_OF_TIME(below_its_cap_nobody_waits);
	CASE_OF_TIME(what_it_took_is_charged_when_the_program_has_waited);
	CASE_OF_TIME(a_pause_is_not_charged);
	CASE(every_launch_is_held);
	CASE(what_is_captured_goes_into_its_graph);
	CASE_OF_TIME(the_gate_comes_and_goes_while_it_runs);
	CASE(who_waits_goes_on_as_soon_as_there_is_no_cap);
	CASE_OF_TIME(garbage_in_the_ledger_goes_by);
	return summary();
}

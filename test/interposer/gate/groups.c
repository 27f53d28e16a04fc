/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Launches in groups: streams, contexts, threads and processes that come and go meanwhile. */
#include "busy.h"
#include "gate/own.h"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

/* ---- streams ---- */

/* With work in flight. */
static void streams_come_and_go(void)
{
	struct step step = step_with_gate(1, 90);
	CUfunction function;
	uint64_t since;

	cuda_begin(0);
	function = busy_kernel();
	since = now_ns();
	for (int i = 0; i < 200; i++) {
		CUstream stream[3];

		for (int s = 0; s < 3; s++) {
			CHECK_IS(cuStreamCreate(&stream[s], 0), CUDA_SUCCESS);
			busy(function, 50, stream[s]);
		}
		for (int s = 0; s < 3; s++)
			CHECK_IS(cuStreamDestroy_v2(stream[s]), CUDA_SUCCESS);
	}
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK(now_ns() - since < 10000 * MS * PATIENCE);
	CHECK(owed_until(&step) > since - 250 * MS);
}

/* More than there are places, all at work: each launch goes, and is charged for. */
static void there_may_be_more_streams_than_places(void)
{
	enum { STREAMS = 400, ROUNDS = 3, US = 200 };
	struct step step = step_with_gate(2, 40);
	static CUstream stream[STREAMS];
	CUfunction function;
	uint64_t since;

	cuda_begin(0);
	function = busy_kernel();
	for (int s = 0; s < STREAMS; s++)
		CHECK_IS(cuStreamCreate(&stream[s], 1), CUDA_SUCCESS);
	busy(function, US, NULL);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	use_up(&step, 0);
	since = now_ns();
	for (int i = 0; i < ROUNDS * STREAMS; i++)
		busy(function, US, stream[i % STREAMS]);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	busy(function, US, NULL);
	CHECK_WITHIN(now_ns() - since, ROUNDS * STREAMS * US * 1000ull / 45 * 100, 20000 * MS);
	check_cap(&step, function, 1000, NULL, 0, 400);
}

/* Each takes until all that came before has run, which all of them together take. */
static void streams_at_the_same_time_are_charged_for_once(void)
{
	enum { STREAMS = 16 };
	struct step step = step_with_gate(3, 50);
	CUstream stream[STREAMS];
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	for (int s = 0; s < STREAMS; s++) {
		CHECK_IS(cuStreamCreate(&stream[s], 1), CUDA_SUCCESS);
		busy(function, 1000, stream[s]);
	}
	begin_to_count(&step);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_WITHIN(charged_ns(&step), 12 * MS, 60 * MS);
}

/* ---- threads ---- */

static CUcontext context;
static uint32_t ends, launches;

static void *launch_often(void *stream)
{
	CUfunction function;

	CHECK_IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
	function = busy_kernel();
	while (!__atomic_load_n(&ends, __ATOMIC_RELAXED)) {
		busy(function, 300, stream);
		__atomic_add_fetch(&launches, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void threads_launch_into(CUstream stream, unsigned at_least)
{
	struct step step = step_with_gate(stream == NULL ? 4 : 5, 30);
	pthread_t thread[4];
	uint64_t since;
	unsigned got;

	cuda_begin(0);
	CHECK_IS(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	use_up(&step, 0);
	since = now_ns();
	for (int t = 0; t < 4; t++)
		CHECK_IS(pthread_create(&thread[t], NULL, launch_often, stream), 0);
	usleep(600000);
	got = (unsigned)(__atomic_load_n(&launches, __ATOMIC_RELAXED) * 300 * 1000000ull /
			 (now_ns() - since));
	__atomic_store_n(&ends, 1, __ATOMIC_RELAXED);
	for (int t = 0; t < 4; t++)
		CHECK_IS(pthread_join(thread[t], NULL), 0);
	CHECK_WITHIN(got, at_least, 350);
}

static void several_threads_have_one_cap(void)
{
	threads_launch_into(NULL, 200);
}

/* One handle, and a stream for each of them. */
static void threads_with_streams_of_their_own_have_one_cap(void)
{
	threads_launch_into(CU_STREAM_PER_THREAD, 200);
}

/* ---- contexts ---- */

static void contexts_end_with_work_in_flight(void)
{
	struct step step = step_with_gate(6, 90);
	CUcontext mine;
	CUfunction function;
	CUstream stream;

	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	for (int i = 0; i < 30; i++) {
		CHECK_IS(cuCtxCreate_v2(&mine, 0, 0), CUDA_SUCCESS);
		function = busy_kernel();
		CHECK_IS(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
		for (int l = 0; l < 5; l++)
			busy(function, 500, i % 2 == 0 ? stream : NULL);
		CHECK_IS(cuCtxDestroy_v2(mine), CUDA_SUCCESS);
	}
	CHECK(owed_until(&step) > 0);
	/* And what its last one did is charged when it ends. */
	CHECK_IS(cuCtxCreate_v2(&mine, 0, 0), CUDA_SUCCESS);
	busy(busy_kernel(), 4000, NULL);
	begin_to_count(&step);
	usleep(20000);
	CHECK_IS(cuCtxDestroy_v2(mine), CUDA_SUCCESS);
	CHECK_WITHIN(charged_ns(&step), 3900000, 8 * MS);
	/* Also where the GPU has not done it by then: as what came before took. */
	owe(&step, 0);
	CHECK_IS(cuCtxCreate_v2(&mine, 0, 0), CUDA_SUCCESS);
	busy(busy_kernel(), 4000, NULL);
	begin_to_count(&step);
	CHECK_IS(cuCtxDestroy_v2(mine), CUDA_SUCCESS);
	CHECK(charged_ns(&step) > MS / 2);
	owe(&step, 0);
	cuda_begin(0);
	busy(busy_kernel(), 500, NULL);
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	cuda_begin(0);
	check_cap(&step, busy_kernel(), 1000, NULL, 0, 500);
}

/* The place of a stream goes with its context, and so do the events. */
static void there_may_be_more_contexts_than_places(void)
{
	unsigned before = 0, made = 0;
	CUcontext mine;

	step_with_gate(12, 90);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	for (int i = 0; i < VGPU_GATE_STREAMS + 2; i++) {
		CHECK_IS(cuSimAsked("cuEventCreate", &before), CUDA_SUCCESS);
		CHECK_IS(cuCtxCreate_v2(&mine, 0, 0), CUDA_SUCCESS);
		busy(busy_kernel(), 10, NULL);
		CHECK_IS(cuSimAsked("cuEventCreate", &made), CUDA_SUCCESS);
		CHECK_IS(made - before, 2);
		CHECK_IS(cuCtxDestroy_v2(mine), CUDA_SUCCESS);
	}
}

/* ---- where the driver makes no events ---- */

static void without_events_each_launch_is_waited_for(void)
{
	struct step step = step_with_gate(7, 50);
	CUfunction function;
	uint64_t since;

	cuda_begin(0);
	function = busy_kernel();
	CHECK_IS(cuSimFailNext(1), CUDA_SUCCESS);
	since = now_ns();
	busy(function, 20000, NULL);
	CHECK(now_ns() - since >= 20 * MS);
	CHECK(owed_until(&step) > since - 220 * MS);
	CHECK(owed_until(&step) <= 2 * now_ns() - since);
	check_cap(&step, function, 1000, NULL, 0, 500);
}

static void or_goes_where_the_limits_say_so(void)
{
	struct step step = step_with_gate(8, 50);
	CUfunction function;
	uint64_t since;

	step.limits->flags |= VGPU_FAIL_OPEN;
	cuda_begin(0);
	function = busy_kernel();
	CHECK_IS(cuSimFailNext(1), CUDA_SUCCESS);
	since = now_ns();
	busy(function, 20000, NULL);
	CHECK(now_ns() - since < 15 * MS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_IS(owed_until(&step), 0);
}

/* ---- processes ---- */

static uint32_t *launched; /* by each */

static pid_t start(unsigned number, const struct step *step)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid != 0)
		return pid;
	failures = 0;
	alarm(60);
	step_enter(step);
	cuda_begin(0);
	for (CUfunction function = busy_kernel(); failures == 0;) {
		busy(function, 1000, NULL);
		__atomic_add_fetch(&launched[number], 1, __ATOMIC_RELAXED);
	}
	_exit(1);
}

static void map_counts(void)
{
	launched = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(launched != MAP_FAILED);
}

static uint32_t launched_by(unsigned number)
{
	return __atomic_load_n(&launched[number], __ATOMIC_RELAXED);
}

static void end(pid_t pid)
{
	int status;

	CHECK_IS(kill(pid, SIGKILL), 0);
	CHECK_IS(waitpid(pid, &status, 0), pid);
	CHECK(WIFSIGNALED(status));
}

static void processes_of_a_job_have_one_cap(void)
{
	struct step step = step_with_gate(9, 40), other = step_make(9, 1, 1000, 1000);
	uint32_t before[3], got[3], all = 0;
	uint64_t since;
	pid_t pid[3];

	map_counts();
	step_cap(&other, 40);
	step_gate(&other, true);
	for (unsigned i = 0; i < 3; i++)
		pid[i] = start(i, i == 2 ? &other : &step);
	for (unsigned i = 0; i < 3; i++) {
		while (launched_by(i) < 30)
			usleep(1000);
	}
	for (unsigned i = 0; i < 3; i++)
		before[i] = launched_by(i);
	since = now_ns();
	usleep(800000);
	for (unsigned i = 0; i < 3; i++)
		got[i] = launched_by(i) - before[i];
	since = now_ns() - since;
	for (unsigned i = 0; i < 3; i++) {
		CHECK(got[i] > 0);
		all += got[i];
		end(pid[i]);
	}
	CHECK_WITHIN(all * 1000000000ull / since, 50, 430);
}

/* Wherever it was: what it owed is paid for by time, and nobody waits for it. */
static void who_is_killed_holds_nobody_up(void)
{
	struct step step = step_with_gate(10, 50);
	CUfunction function;
	uint64_t since;

	map_counts();
	for (unsigned i = 0; i < 30; i++) {
		uint32_t before = launched_by(0);
		pid_t pid = start(0, &step);

		while (launched_by(0) < before + 2)
			usleep(100);
		usleep(i * 300);
		end(pid);
	}
	cuda_begin(0);
	function = busy_kernel();
	since = now_ns();
	busy(function, 1000, NULL);
	CHECK(now_ns() - since < 1000 * MS * PATIENCE);
	check_cap(&step, function, 1000, NULL, 0, 500);
}

static void a_forked_child_begins_anew(void)
{
	struct step step = step_with_gate(11, 50);
	CUfunction function;
	int status;
	pid_t pid;

	cuda_begin(0);
	function = busy_kernel();
	for (int i = 0; i < 4; i++)
		busy(function, 1000, NULL);
	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		unsigned us = 10;
		void *params[] = {&us};

		/* The driver's word: it is not the child's. */
		CHECK(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL) != CUDA_SUCCESS);
		_exit(failures);
	}
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	check_cap(&step, function, 1000, NULL, 0, 500);
}

int main(void)
{
	gpus(0);
	CASE(streams_come_and_go);
	CASE_OF_TIME(there_may_be_more_streams_than_places);
	CASE_OF_TIME(streams_at_the_same_time_are_charged_for_once);
	CASE_OF_TIME(several_threads_have_one_cap);
	CASE_OF_TIME(threads_with_streams_of_their_own_have_one_cap);
	CASE_OF_TIME(contexts_end_with_work_in_flight);
	CASE(there_may_be_more_contexts_than_places);
	CASE_OF_TIME(without_events_each_launch_is_waited_for);
	CASE_OF_TIME(or_goes_where_the_limits_say_so);
	CASE_OF_TIME(processes_of_a_job_have_one_cap);
	CASE_OF_TIME(who_is_killed_holds_nobody_up);
	CASE_OF_TIME(a_forked_child_begins_anew);
	return summary();
}

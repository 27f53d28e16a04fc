/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Launches that are held back on the GPU: the program runs ahead, and nothing else is different. */
#include "slices.h"

#include <sys/wait.h>

#define DEBT_NS 60000000u

/* The kernel's length is known after that. */
static CUfunction known_kernel(unsigned us)
{
	CUfunction function = busy_kernel();

	for (int i = 0; i < 12; i++) {
		busy(function, us, NULL);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	}
	return function;
}

/* From now on the slice has nothing for so long; what it had taken before is gone, too. */
static uint64_t owe(const struct step *step)
{
	uint64_t until = now_ns() + DEBT_NS;

	__atomic_store_n(&step->ledger->share_free_at_ns[0], until, __ATOMIC_RELAXED);
	return until;
}

static uint64_t waited(const struct step *step)
{
	return __atomic_load_n(&step->ledger->waited_ns[0], __ATOMIC_RELAXED);
}

/* Launches into the streams by turns, until one is held back; true when all the calls returned before the
 * slice had anything again. */
static bool runs_ahead(const struct step *step, CUfunction function, unsigned us, CUstream *stream,
		       unsigned streams)
{
	uint64_t until = owe(step);

	for (unsigned i = 0; i < 20; i++)
		busy(function, us, stream[i % streams]);
	return now_ns() < until;
}

static void launches_do_not_wait_on_the_host(void)
{
	struct step step = step_with_share(1, 50);
	CUstream stream[2];
	CUfunction function;
	bool ahead = false;

	cuda_begin(0);
	function = known_kernel(200);
	CHECK(cuStreamCreate(&stream[0], 1) == CUDA_SUCCESS && cuStreamCreate(&stream[1], 0) == CUDA_SUCCESS);
	/* On a busy machine the calls themselves may take that long. */
	for (int try = 0; try < 20 && !ahead; try++) {
		uint64_t before = waited(&step);

		ahead = runs_ahead(&step, function, 200, stream, 2);
		for (int s = 0; s < 2 && ahead; s++)
			CHECK_IS(cuStreamQuery(stream[s]), CUDA_ERROR_NOT_READY);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
		CHECK(waited(&step) > before);
	}
	CHECK(ahead);
}

/* What one stream waits for in another one comes first, whatever is held back where. */
static void order_is_kept(void)
{
	struct step step = step_with_share(2, 50);
	CUstream first, second;
	CUfunction function;
	CUevent between, last;
	float ms;

	cuda_begin(0);
	function = known_kernel(300);
	CHECK(cuStreamCreate(&first, 1) == CUDA_SUCCESS && cuStreamCreate(&second, 1) == CUDA_SUCCESS);
	CHECK(cuEventCreate(&between, 0) == CUDA_SUCCESS && cuEventCreate(&last, 0) == CUDA_SUCCESS);
	for (int round = 0; round < 5; round++) {
		owe(&step);
		for (int i = 0; i < 3; i++)
			busy(function, 300, first);
		CHECK_IS(cuEventRecord(between, first), CUDA_SUCCESS);
		CHECK_IS(cuStreamWaitEvent(second, between, 0), CUDA_SUCCESS);
		busy(function, 300, second);
		CHECK_IS(cuEventRecord(last, second), CUDA_SUCCESS);
		CHECK_IS(cuEventSynchronize(last), CUDA_SUCCESS);
		CHECK_IS(cuEventQuery(between), CUDA_SUCCESS);
		CHECK(cuEventElapsedTime(&ms, between, last) == CUDA_SUCCESS && ms > 0.29f);
	}
}

/* A program that never waits is held up on the host after a while: the GPU's queues are finite. */
static void nobody_runs_ahead_for_ever(void)
{
	struct step step = step_with_share(3, 50);
	CUfunction function;
	uint64_t until;

	cuda_begin(0);
	function = known_kernel(1000);
	until = owe(&step);
	for (int i = 0; i < 60; i++)
		busy(function, 1000, NULL);
	CHECK(now_ns() >= until);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void what_is_held_back_ends_with_its_stream(void)
{
	struct step step = step_with_share(4, 50);
	CUfunction function;
	CUcontext context;
	CUstream stream;

	cuda_begin(0);
	function = known_kernel(100);
	for (int i = 0; i < 10; i++) {
		CHECK(cuStreamCreate(&stream, 1) == CUDA_SUCCESS);
		owe(&step);
		for (int k = 0; k < 4; k++)
			busy(function, 100, stream);
		CHECK_IS(cuStreamDestroy_v2(stream), CUDA_SUCCESS);
	}
	owe(&step);
	busy(function, 100, NULL);
	CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	/* And a new one begins as the first did. */
	CHECK(cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
	      cuCtxSetCurrent(context) == CUDA_SUCCESS);
	function = known_kernel(100);
	owe(&step);
	busy(function, 100, NULL);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

/* The default stream and the others of the old kind wait for each other, and so for what is held back
 * there. */
static void streams_that_wait_for_each_other_go_on(void)
{
	struct step step = step_with_share(9, 30);
	CUstream other;
	CUfunction function;
	uint64_t since, before;

	alarm(60);
	cuda_begin(0);
	function = known_kernel(100);
	CHECK(cuStreamCreate(&other, 0) == CUDA_SUCCESS);
	before = step.ledger->busy_ns[0];
	since = now_ns();
	for (int i = 0; i < 600; i++)
		busy(function, 100, i % 3 == 0 ? NULL : i % 3 == 1 ? other : CU_STREAM_PER_THREAD);
	CHECK_WITHIN(step_busy_ns_when_seen(&step, before, 57000000, 1000000000u), 57000000, 80000000);
	CHECK(now_ns() - since < 11000000000u);
}

/* While something is captured no stream is made to wait for memory; launches wait on the host. */
static void captures_see_nothing_of_it(void)
{
	struct step step = step_with_share(5, 50);
	CUstream captured, other;
	CUfunction function;
	CUgraph graph = NULL;
	uint64_t until;

	cuda_begin(0);
	function = known_kernel(100);
	CHECK(cuStreamCreate(&captured, 1) == CUDA_SUCCESS && cuStreamCreate(&other, 1) == CUDA_SUCCESS);
	until = owe(&step);
	CHECK(cuStreamBeginCapture_v2(captured, 2) == CUDA_SUCCESS);
	busy(function, 100, captured);
	for (int i = 0; i < 12; i++)
		busy(function, 100, other);
	CHECK(now_ns() >= until);
	busy(function, 100, captured);
	CHECK(cuStreamEndCapture(captured, &graph) == CUDA_SUCCESS && graph != NULL);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void a_program_ends_with_launches_held_back(void)
{
	struct step step = step_with_share(6, 50);
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		CUfunction function;

		alarm(30);
		step_enter(&step);
		cuda_begin(0);
		function = known_kernel(100);
		owe(&step);
		for (int i = 0; i < 8; i++)
			busy(function, 100, NULL);
		exit(failures == 0 ? 0 : 1);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	CHECK_IS(status, 0);
}

/* Kernels that were let go together are timed by the GPU, whenever the poller looks. */
static void what_was_held_back_counts_for_what_it_took(void)
{
	enum { ROUNDS = 40, KERNELS = 6, US = 150 };
	struct step step = step_with_share(7, 50);
	CUfunction function;
	uint64_t before, used;

	cuda_begin(0);
	function = known_kernel(US);
	for (uint64_t since = now_ns();
	     now_ns() - since < 5000000000u && step.ledger->busy_ns[0] < 12 * US * 900;)
		sched_yield();
	before = step.ledger->busy_ns[0];
	for (int i = 0; i < ROUNDS; i++) {
		__atomic_store_n(&step.ledger->share_free_at_ns[0], now_ns() + 3000000, __ATOMIC_RELAXED);
		for (int k = 0; k < KERNELS; k++)
			busy(function, US, NULL);
	}
	used = step_busy_ns_when_seen(&step, before, ROUNDS * KERNELS * US * 980ull, 5000000000u);
	CHECK_WITHIN(used, ROUNDS * KERNELS * US * 980ull, ROUNDS * KERNELS * US * 1030ull);
}

/* Not under a sanitizer: a launch takes longer than these kernels there, so that there is no row of them,
 * and what a clock tells by percents is told beside other tests. */
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#define ROWS_OF_SHORT_KERNELS
#endif
#ifdef ROWS_OF_SHORT_KERNELS
/* Kernels that take less in a row than alone, as they are timed: by what the GPU says of those that are held
 * back the others are counted. */
static void short_kernels_in_a_row_count_for_what_they_take(void)
{
	enum { PIECES = 600, KERNELS = 100, US = 10, AHEAD = 2 };
	unsigned long long before = 0, after = 0;
	uint64_t counted = 0, took;
	CUevent done[AHEAD];
	CUfunction function;
	struct step step;

	gpus_also("prepare_ns=1000");
	step = step_with_share(8, 90);
	cuda_begin(0);
	function = known_kernel(US);
	for (int i = 0; i < AHEAD; i++)
		CHECK(cuEventCreate(&done[i], 2) == CUDA_SUCCESS &&
		      cuEventRecord(done[i], NULL) == CUDA_SUCCESS);
	for (int i = 0; i < PIECES; i++) {
		CHECK_IS(cuEventSynchronize(done[i % AHEAD]), CUDA_SUCCESS);
		if (i == PIECES / 4) {
			counted = step_busy_ns(&step);
			CHECK_IS(cuSimBusy(0, &before), CUDA_SUCCESS);
		}
		for (int k = 0; k < KERNELS; k++)
			busy(function, US, NULL);
		CHECK_IS(cuEventRecord(done[i % AHEAD], NULL), CUDA_SUCCESS);
	}
	CHECK_IS(cuSimBusy(0, &after), CUDA_SUCCESS);
	took = after - before;
	CHECK_WITHIN(step_busy_ns_when_seen(&step, counted, took * 97 / 100, 1000 * MS), took * 97 / 100,
		     took * 103 / 100);
}
#endif

/* With a driver that cannot make a stream wait for memory, launches wait on the host. */
static void without_such_waits_shares_are_kept_too(void)
{
	struct step step = step_with_share(8, 50);
	CUfunction function;
	uint64_t until;

	gpus_also("no_wait_value=1");
	cuda_begin(0);
	function = known_kernel(200);
	for (int i = 0; i < 3; i++) {
		until = owe(&step);
		for (int k = 0; k < 10; k++)
			busy(function, 200, NULL);
		CHECK(now_ns() >= until);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	}
}

/* A launch that cannot be marked is a launch all the same. */
static void without_events_launches_go_on(void)
{
	struct step step = step_with_share(10, 50);
	CUfunction function;
	CUstream stream;

	cuda_begin(0);
	function = known_kernel(1000);
	CHECK_IS(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	for (unsigned fails = 1; fails < 100; fails++) {
		owe(&step);
		CHECK_IS(cuSimFailNext(fails), CUDA_SUCCESS);
		for (unsigned i = 0; i < fails % 4; i++)
			busy(function, 1000, stream);
		CHECK_IS(cuSimFailNext(0), CUDA_SUCCESS);
	}
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(launches_do_not_wait_on_the_host);
	CASE(order_is_kept);
	CASE(nobody_runs_ahead_for_ever);
	CASE(what_is_held_back_ends_with_its_stream);
	CASE_OF_TIME(streams_that_wait_for_each_other_go_on);
	CASE_OF_TIME(captures_see_nothing_of_it); /* whether the debt is over is told by the clock */
	CASE(a_program_ends_with_launches_held_back);
	CASE_OF_TIME(what_was_held_back_counts_for_what_it_took);
#ifdef ROWS_OF_SHORT_KERNELS
	CASE_OF_TIME(short_kernels_in_a_row_count_for_what_they_take);
#endif
	CASE_OF_TIME(without_such_waits_shares_are_kept_too);
	CASE(without_events_launches_go_on);
	return summary();
}

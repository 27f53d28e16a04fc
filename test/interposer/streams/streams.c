/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Programs with many streams: each stream's work counts for what it takes, also where more of them have work
 * than the library has places for. */
#include "streams/engine.h"
#include "slices.h"

#include <pthread.h>

#define MS 1000000ull
#define LONG_US 20000u
#define SHORT_US 1u

CUresult cuMemAllocHost_v2(void **pointer, size_t bytes);

static struct step step;
static CUfunction function;
static CUstream crowd[VGPU_STREAMS], extra;
static uint32_t *word, opened;

static uint64_t used(void)
{
	return step_busy_ns(&step);
}

static uint64_t waited(void)
{
	return __atomic_load_n(&step.ledger->waited_ns[0], __ATOMIC_RELAXED);
}

static uint64_t used_when_seen(uint64_t before_ns, uint64_t at_least_ns)
{
	return step_busy_ns_when_seen(&step, before_ns, at_least_ns, 1000 * MS);
}

/* Both kernels' length is known after that. */
static void learn(void)
{
	uint64_t before = used();

	function = busy_kernel();
	for (int i = 0; i < 6; i++) {
		busy(function, SHORT_US, NULL);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
		busy(function, LONG_US, NULL);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	}
	CHECK(used_when_seen(before, 6 * LONG_US * 950ull) >= 6 * LONG_US * 950ull);
}

static void begin(uint32_t job)
{
	void *pinned = NULL;

	alarm(120);
	step = step_with_share(job, 90);
	cuda_begin(0);
	CHECK(cuMemAllocHost_v2(&pinned, 4096) == CUDA_SUCCESS);
	word = pinned;
	*word = opened = 0;
	for (unsigned i = 0; i < VGPU_STREAMS; i++)
		CHECK(cuStreamCreate(&crowd[i], 1) == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&extra, 1) == CUDA_SUCCESS);
	learn();
}

/* Each stream has work that does not begin before the word is opened. */
static void crowd_in(void)
{
	opened++;
	for (unsigned i = 0; i < VGPU_STREAMS; i++) {
		CHECK_IS(cuStreamWaitValue32_v2(crowd[i], (CUdeviceptr)(uintptr_t)word, opened, 0),
			 CUDA_SUCCESS);
		busy(function, SHORT_US, crowd[i]);
	}
}

static void open_word(void)
{
	__atomic_store_n(word, opened, __ATOMIC_RELEASE);
}

static void *open_when_somebody_waits(void *nothing)
{
	uint64_t before = waited();

	(void)nothing;
	for (uint64_t since = now_ns(); now_ns() - since < 2000 * MS && waited() == before;)
		sched_yield();
	open_word();
	return NULL;
}

/* On a busy machine the word may be opened too late for it: then again. */
static void who_finds_no_place_waits_for_one(void)
{
	uint64_t want = LONG_US * 950ull, got = 0;

	begin(1);
	for (int try = 0; try < 20 && got < want; try++) {
		uint64_t before;
		pthread_t opener;

		crowd_in();
		before = used();
		CHECK(pthread_create(&opener, NULL, open_when_somebody_waits, NULL) == 0);
		busy(function, LONG_US, extra);
		CHECK(pthread_join(opener, NULL) == 0);
		got = used_when_seen(before, want);
	}
	CHECK(got >= want);
}

/* All that work may be waiting for what is launched last. */
static void nobody_waits_for_a_place_for_ever(void)
{
	uint64_t since;

	begin(2);
	crowd_in();
	since = now_ns();
	for (int i = 0; i < 3; i++)
		busy(function, SHORT_US, extra);
	CHECK(now_ns() - since >= 3 * 240 * MS);
	CHECK_IS(cuStreamQuery(crowd[0]), CUDA_ERROR_NOT_READY);
	open_word();
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

/* Streams with nothing to do keep their places only as long as nobody else needs them. */
static void another_context_has_places_too(void)
{
	CUcontext context;
	CUstream stream;
	uint64_t before, had_waited;

	begin(3);
	crowd_in();
	open_word();
	used_when_seen(used(), VGPU_STREAMS * SHORT_US * 900ull);
	CHECK(cuCtxCreate_v2(&context, 0, 0) == CUDA_SUCCESS && cuStreamCreate(&stream, 1) == CUDA_SUCCESS);
	learn();
	before = used();
	had_waited = waited();
	for (int i = 0; i < 4; i++)
		busy(function, LONG_US, stream);
	CHECK(used_when_seen(before, 4 * LONG_US * 950ull) >= 4 * LONG_US * 950ull);
	CHECK(waited() - had_waited < 200 * MS);
}

static void *launch_into_own_stream(void *context)
{
	CHECK(cuCtxSetCurrent(*(CUcontext *)context) == CUDA_SUCCESS);
	busy(function, 1000, CU_STREAM_PER_THREAD);
	CHECK_IS(cuStreamSynchronize(CU_STREAM_PER_THREAD), CUDA_SUCCESS);
	return NULL;
}

static void threads_come_and_go(void)
{
	enum { THREADS = 200 };
	CUcontext context;
	uint64_t before, got;

	begin(4);
	CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
	before = used();
	for (int i = 0; i < THREADS; i++) {
		pthread_t thread;

		CHECK(pthread_create(&thread, NULL, launch_into_own_stream, &context) == 0 &&
		      pthread_join(thread, NULL) == 0);
	}
	got = used_when_seen(before, THREADS * 950000ull);
	CHECK_WITHIN(got, THREADS * 950000ull, THREADS * 1100000ull);
}

/* Nothing is left uncounted, and nothing counts twice unless somebody else keeps this machine's cores busy:
 * then again. */
static void what_many_streams_use_is_counted(void)
{
	struct step crowded = slice_make(5, 40, 0);
	struct worker *worker = worker_start(&crowded, 1000, 200);
	uint64_t launches = 0, used_ns = 1;

	CHECK(worker_waits_for(worker, 400, 20000 * MS));
	for (int try = 0; try < 20 && used_ns > launches * MS * 103 / 100; try++) {
		launches = launches_of(worker);
		used_ns = crowded.ledger->busy_ns[0];
		CHECK(worker_waits_for(worker, launches + 800, 20000 * MS));
		launches = launches_of(worker) - launches;
		used_ns = crowded.ledger->busy_ns[0] - used_ns;
		CHECK(used_ns >= launches * MS * 96 / 100);
	}
	if (used_ns > launches * MS * 103 / 100)
		fprintf(stderr, "%llu launches of 1 ms count %llu us\n", (unsigned long long)launches,
			(unsigned long long)used_ns / 1000), failures++;
	worker_end(worker);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(what_many_streams_use_is_counted);
	CASE(who_finds_no_place_waits_for_one);
	CASE_OF_TIME(nobody_waits_for_a_place_for_ever);
	CASE(another_context_has_places_too);
	CASE(threads_come_and_go);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What stream-ordered allocations may take while they are in the driver is announced, not charged: all the
 * same nobody passes a limit. What others have announced is in reserve_others.c. */
#include "harness.h"
#include "things.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define LIMIT_MIB 256u
#define CHUNK (32 * MIB)
#define PROCESSES 4
#define THREADS 6
#define CALLS 300
#define BLOCKS 4

static struct step step;
static CUcontext context;
static pthread_barrier_t all_there;
static struct {
	uint64_t taken, refused, errors;
} *shared;

#define READ(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define WRITE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_SEQ_CST)
#define COUNT(field) __atomic_add_fetch(&(field), 1, __ATOMIC_SEQ_CST)

struct block {
	CUdeviceptr pointer; /* 0: none */
	bool plain;
};

static void take(struct block *block, CUstream stream, uint32_t *seed)
{
	uint64_t bytes = (1 + thing_random(seed) % 40) * MIB;
	CUresult result;

	block->plain = thing_random(seed) % 3 == 0;
	result = block->plain ? cuMemAlloc_v2(&block->pointer, bytes)
			      : cuMemAllocAsync(&block->pointer, bytes, stream);
	if (result != CUDA_SUCCESS)
		block->pointer = 0;
	COUNT(*(result == CUDA_SUCCESS		     ? &shared->taken
		: result == CUDA_ERROR_OUT_OF_MEMORY ? &shared->refused
						     : &shared->errors));
}

static void give(struct block *block, CUstream stream)
{
	if ((block->plain ? cuMemFree_v2(block->pointer) : cuMemFreeAsync(block->pointer, stream)) !=
	    CUDA_SUCCESS)
		COUNT(shared->errors);
	block->pointer = 0;
}

static void *race_thread(void *argument)
{
	uint32_t seed = (uint32_t)(uintptr_t)argument;
	struct block block[BLOCKS] = {0};
	CUstream stream;

	CHECK_IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
	CHECK_IS(cuStreamCreate(&stream, 0), CUDA_SUCCESS);
	pthread_barrier_wait(&all_there);
	for (int i = 0; i < CALLS; i++) {
		struct block *b = &block[thing_random(&seed) % BLOCKS];

		if (b->pointer == 0)
			take(b, stream, &seed);
		else
			give(b, stream);
		/* It takes from the pool whatever is free there, so that the pool grows again. */
		if (thing_random(&seed) % 2 == 0)
			cuStreamSynchronize(stream);
		sched_yield();
	}
	for (int i = 0; i < BLOCKS; i++)
		if (block[i].pointer != 0)
			give(&block[i], stream);
	CHECK_IS(cuStreamSynchronize(stream), CUDA_SUCCESS);
	return NULL;
}

static void race_threads(uint32_t number)
{
	pthread_t thread[THREADS];

	library_quiet();
	cuda_begin(0);
	CHECK_IS(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	pthread_barrier_init(&all_there, NULL, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, race_thread, (void *)(number * 100 + i)), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_IS(pthread_join(thread[i], NULL), 0);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void check_highest(void)
{
	size_t highest, all;

	CHECK_IS(cuSimHighest(0, &highest), CUDA_SUCCESS);
	CHECK(highest <= LIMIT_MIB * MIB);
	CHECK(highest >= LIMIT_MIB * MIB - 2 * CHUNK); /* else the limit was never near */
	CHECK_IS(cuSimHeld(0, NULL, &all), CUDA_SUCCESS);
	CHECK_IS(all, 0);
	CHECK_IS(shared->errors, 0);
	CHECK(shared->taken > 100);
	CHECK(shared->refused > 0);
}

static void in_processes(void (*run)(uint32_t number))
{
	pid_t pid[PROCESSES];

	for (uint32_t i = 0; i < PROCESSES; i++) {
		if ((pid[i] = fork()) == 0) {
			run(i + 1);
			_exit(failures == 0 ? 0 : 1);
		}
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status = -1;

		waitpid(pid[i], &status, 0);
		CHECK_IS(status, 0);
	}
}

static void processes_that_announce_never_pass_the_limit(void)
{
	gpus(0);
	step = step_make(1, 0, LIMIT_MIB, LIMIT_MIB);
	in_processes(race_threads);
	cuda_begin(0);
	check_highest();
	CHECK(step.ledger->peak_bytes[0] <= LIMIT_MIB * MIB);
	CHECK_IS(step_used_bytes(&step), 0);
	for (int i = 0; i < VGPU_MAX_PROCS; i++)
		CHECK_IS(step.ledger->slot[i].may_take_bytes[0], 0);
	CHECK_IS(step.ledger->lock, 0);
}

/* There is room for one of them at a time. */
static void want_the_only_chunk(uint32_t seed)
{
	struct block block;

	library_quiet();
	cuda_begin(0);
	for (int i = 0; i < 10 * CALLS; i++) {
		block.plain = thing_random(&seed) % 2 == 0;
		if ((block.plain ? cuMemAlloc_v2(&block.pointer, CHUNK)
				 : cuMemAllocAsync(&block.pointer, MIB, NULL)) != CUDA_SUCCESS)
			continue;
		COUNT(shared->taken);
		give(&block, NULL);
		cuCtxSynchronize();
	}
}

static void the_only_chunk_is_had_by_one_at_a_time(void)
{
	size_t highest;

	gpus(0);
	step = step_make(8, 0, 32, 32);
	in_processes(want_the_only_chunk);
	cuda_begin(0);
	CHECK_IS(cuSimHighest(0, &highest), CUDA_SUCCESS);
	CHECK_IS(highest, CHUNK);
	CHECK_IS(step.ledger->peak_bytes[0], CHUNK);
	CHECK_IS(step_used_bytes(&step), 0);
	CHECK_IS(shared->errors, 0);
	CHECK(shared->taken > 1000);
}

static bool ended;

static void *wipe_the_ledger(void *unused)
{
	while (!READ(ended)) {
		WRITE(step.ledger->slot[0].may_take_bytes[0], 0);
		WRITE(step.ledger->slot[0].used_bytes[0], 0);
		WRITE(step.ledger->used_bytes[0], 0);
		WRITE(step.ledger->lock, 0);
	}
	return unused;
}

static void one_process_never_passes_the_limit_whatever_is_written(void)
{
	pthread_t wiper;

	gpus(0);
	step = step_make(2, 0, LIMIT_MIB, LIMIT_MIB);
	CHECK_IS(pthread_create(&wiper, NULL, wipe_the_ledger, NULL), 0);
	race_threads(1);
	WRITE(ended, true);
	CHECK_IS(pthread_join(wiper, NULL), 0);
	check_highest();
}

int main(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	gpus(0);
	CASE(processes_that_announce_never_pass_the_limit);
	CASE(the_only_chunk_is_had_by_one_at_a_time);
	CASE(one_process_never_passes_the_limit_whatever_is_written);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What stream-ordered allocations may take while they are in the driver is announced, not charged: all the
 * same nobody passes a limit, and who is killed there leaves nothing behind. */
#include "harness.h"
#include "things.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define LIMIT_MIB 256u
#define CHUNK (32 * MIB)
#define PROCESSES 4
#define THREADS 6
#define CALLS 300
#define BLOCKS 4
#define ROUNDS 50

static struct step step;
static CUcontext context;
static pthread_barrier_t all_there;
static struct {
	uint64_t taken, refused, errors;
} *shared;

#define READ(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define WRITE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_SEQ_CST)
#define COUNT(field) __atomic_add_fetch(&(field), 1, __ATOMIC_SEQ_CST)

/* ---- many at once, right at the limit ---- */

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

/* ---- what is announced by another process ---- */

struct other {
	pid_t pid;
	struct vgpu_ledger_slot *slot;
};

/* Another process of the job that has its slot and does nothing more. */
static struct other other_begin(const struct step *of)
{
	struct other other = {0};
	int ready[2];
	char byte;

	CHECK_IS(pipe(ready), 0);
	if ((other.pid = fork()) == 0) {
		step_enter(of);
		cuda_begin(0);
		if (write(ready[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	CHECK_IS(read(ready[0], &byte, 1), 1);
	for (int i = 0; i < VGPU_MAX_PROCS; i++)
		if (step.ledger->slot[i].state == 1 && step.ledger->slot[i].pid == other.pid)
			other.slot = &step.ledger->slot[i];
	CHECK(other.slot != NULL);
	return other;
}

static void other_end(const struct other *other)
{
	kill(other->pid, SIGKILL);
	waitpid(other->pid, NULL, 0);
}

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void what_is_announced_is_not_there_for_others(void)
{
	struct other other;
	CUdeviceptr a;

	gpus(0);
	step = step_make(3, 0, 128, 128);
	other = other_begin(&step);
	cuda_begin(0);
	WRITE(other.slot->may_take_bytes[0], 64 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 66 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocAsync(&a, 65 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(step.ledger->refusals[0], 2);
	CHECK_IS(cuMemAllocAsync(&a, 32 * MIB, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 32 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAllocAsync(&a, 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	WRITE(other.slot->may_take_bytes[0], 0);
	CHECK_IS(cuMemAlloc_v2(&a, 32 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAllocAsync(&a, 32 * MIB, NULL), CUDA_SUCCESS);
	other_end(&other);
}

static void another_steps_announcement_counts_for_the_job_alone(void)
{
	struct step second;
	struct other other;
	CUdeviceptr a;

	gpus(0);
	step = step_make(4, 0, 64, 100);
	second = step_make(4, 1, 64, 100);
	other = other_begin(&second);
	step_enter(&step);
	cuda_begin(0);
	WRITE(other.slot->may_take_bytes[0], 36 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 64 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	WRITE(other.slot->may_take_bytes[0], 40 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	other_end(&other);
}

static bool gave_up;

/* Takes the announcement back once it has been in the way a few times. */
static void *land(void *argument)
{
	struct vgpu_ledger_slot *slot = argument;
	uint64_t turns = READ(step.ledger->lock_turns);

	while (READ(step.ledger->lock_turns) < turns + 3 && !READ(gave_up))
		nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
	WRITE(slot->may_take_bytes[0], 0);
	return NULL;
}

static void nobody_is_refused_for_what_is_announced_for_a_moment(void)
{
	struct other other;
	int granted = 0;
	CUdeviceptr a;

	gpus(0);
	step = step_make(5, 0, 128, 128);
	library_quiet();
	other = other_begin(&step);
	cuda_begin(0);
	/* The other thread may be held up for longer than is waited. */
	for (int i = 0; i < ROUNDS && granted == 0; i++) {
		pthread_t thread;

		WRITE(gave_up, false);
		WRITE(other.slot->may_take_bytes[0], 128 * MIB);
		CHECK_IS(pthread_create(&thread, NULL, land, other.slot), 0);
		if (cuMemAlloc_v2(&a, 128 * MIB) == CUDA_SUCCESS) {
			granted++;
			CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
		}
		WRITE(gave_up, true);
		CHECK_IS(pthread_join(thread, NULL), 0);
	}
	CHECK(granted != 0);
	other_end(&other);
}

static void the_killed_announce_nothing(void)
{
	struct other other;
	uint64_t began;
	CUdeviceptr a;

	gpus(0);
	step = step_make(6, 0, 128, 128);
	other = other_begin(&step);
	cuda_begin(0);
	WRITE(other.slot->may_take_bytes[0], 128 * MIB);
	CHECK_IS(cuMemAllocAsync(&a, MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	other_end(&other);
	began = now_ms();
	CHECK_IS(cuMemAllocAsync(&a, 96 * MIB, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 32 * MIB), CUDA_SUCCESS);
	CHECK(now_ms() - began < 1000);
	CHECK_IS(other.slot->may_take_bytes[0], 0);
	CHECK_IS(step_used_bytes(&step), 128 * MIB);
}

static void garbage_that_is_announced_only_refuses(void)
{
	struct other other;
	uint64_t began;
	CUdeviceptr a;

	gpus(0);
	step = step_make(7, 0, 128, 128);
	other = other_begin(&step);
	cuda_begin(0);
	/* In the own slot it is put right, in one that nobody has as well. */
	for (int i = 0; i < VGPU_MAX_PROCS; i++)
		if (&step.ledger->slot[i] != other.slot)
			WRITE(step.ledger->slot[i].may_take_bytes[0], UINT64_MAX);
	WRITE(step.ledger->slots_high, UINT32_MAX);
	CHECK_IS(cuMemAllocAsync(&a, MIB, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 128 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	/* Of another process it is believed. */
	WRITE(other.slot->may_take_bytes[0], UINT64_MAX);
	began = now_ms();
	CHECK_IS(cuMemAllocAsync(&a, MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(now_ms() - began < 1000);
	WRITE(other.slot->may_take_bytes[0], 0);
	WRITE(step.ledger->slots_high, 0);
	CHECK_IS(cuMemAllocAsync(&a, 128 * MIB, NULL), CUDA_SUCCESS);
	CHECK_IS(step_used_bytes(&step), 128 * MIB);
	CHECK_IS(step.ledger->slots_high, 2);
	other_end(&other);
}

int main(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	gpus(0);
	CASE(processes_that_announce_never_pass_the_limit);
	CASE(the_only_chunk_is_had_by_one_at_a_time);
	CASE(one_process_never_passes_the_limit_whatever_is_written);
	CASE(what_is_announced_is_not_there_for_others);
	CASE(another_steps_announcement_counts_for_the_job_alone);
	CASE(nobody_is_refused_for_what_is_announced_for_a_moment);
	CASE(the_killed_announce_nothing);
	CASE(garbage_that_is_announced_only_refuses);
	return summary();
}

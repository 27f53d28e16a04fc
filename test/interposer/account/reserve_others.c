/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What stream-ordered allocations of another process may take is not there for this one, and its word is
 * believed only as long as it lives. */
#include "harness.h"
#include "things.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>

#define ROUNDS 50

static struct step step;

#define READ(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define WRITE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_SEQ_CST)

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
	gpus(0);
	CASE(what_is_announced_is_not_there_for_others);
	CASE(another_steps_announcement_counts_for_the_job_alone);
	CASE(nobody_is_refused_for_what_is_announced_for_a_moment);
	CASE(the_killed_announce_nothing);
	CASE(garbage_that_is_announced_only_refuses);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ledger's lock and its slots when others do not behave. */
#include "harness.h"

#include <sys/stat.h>
#include <sys/wait.h>

#define LIMIT_MIB 128u

static struct step step;

/* Whoever holds the lock and does not run loses it, and when it runs again it finds the sums right. */
static void a_stopped_holder_loses_the_lock(void)
{
	CUdeviceptr a;
	uint64_t began;

	gpus(0);
	step = step_make(7, 0, LIMIT_MIB, LIMIT_MIB);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	/* A holder that lives and never gives back: this test's parent. */
	step.ledger->used_bytes[0] = 77;
	step.ledger->lock_turns++;
	__atomic_store_n(&step.ledger->lock, (uint32_t)getppid(), __ATOMIC_RELEASE);
	began = now_ns();
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	/* As one that is stuck, after a second; one that is passed on again and again is waited for for
	 * three. */
	CHECK_WITHIN(now_ns() - began, 1000000000, 2500000000);
	CHECK_IS(step.ledger->used_bytes[0], 20 * MIB);
	CHECK_IS(step.ledger->lock, 0);
}

static void a_dead_holder_loses_the_lock(void)
{
	CUdeviceptr a;
	pid_t pid;

	gpus(0);
	step = step_make(8, 0, LIMIT_MIB, LIMIT_MIB);
	cuda_begin(0);
	pid = fork();
	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	step.ledger->used_bytes[0] = 77;
	__atomic_store_n(&step.ledger->lock, (uint32_t)pid, __ATOMIC_RELEASE);
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 10 * MIB);
}

static pid_t ended_child(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	waitpid(pid, NULL, 0);
	return pid;
}

/* All slots are those of one process, which does not live here. */
static void fill_slots(pid_t pid, uint64_t pidns)
{
	for (int i = 0; i < VGPU_MAX_PROCS; i++) {
		step.ledger->slot[i].state = 1;
		step.ledger->slot[i].pid = pid;
		step.ledger->slot[i].start_ticks = 1;
		step.ledger->slot[i].pidns = pidns;
	}
	step.ledger->slots_high = VGPU_MAX_PROCS;
}

static void more_processes_than_slots_are_refused_and_come_again(void)
{
	CUdeviceptr a;
	struct stat st;
	int status = -1;

	gpus(0);
	step = step_make(9, 0, LIMIT_MIB, LIMIT_MIB);
	/* Of another pid namespace nobody can say that they have ended. */
	fill_slots(ended_child(), 42);
	stderr_catch();
	if (fork() == 0)
		_exit(cuInit(0) == CUDA_ERROR_NOT_PERMITTED ? 0 : 1);
	wait(&status);
	CHECK_IS(status, 0);
	CHECK(strstr(stderr_caught(), "too many processes") != NULL);
	for (int i = 0; i < VGPU_MAX_PROCS; i++)
		CHECK_IS(step.ledger->slot[i].state, 1);
	/* Of its own it is known. */
	CHECK(stat("/proc/self/ns/pid", &st) == 0);
	fill_slots(ended_child(), (uint64_t)st.st_ino);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(step_slots_bytes(&step), 10 * MIB);
	CHECK_IS(step_used_bytes(&step), 10 * MIB);
}

/* A job of very many steps: a new one has the place of one that has no processes any more. */
static void a_step_has_nothing_of_who_had_its_place_before(void)
{
	struct vgpu_ledger_step want = {.in_use = 1, .step_id = VGPU_MAX_STEPS};
	CUdeviceptr a;

	want.used_bytes[0] = want.peak_bytes[0] = 10 * MIB;
	gpus(0);
	step = step_make(10, VGPU_MAX_STEPS, LIMIT_MIB, LIMIT_MIB);
	for (uint32_t s = 0; s < VGPU_MAX_STEPS; s++) {
		/* All figures that there are. */
		memset(&step.ledger->step[s], 0xff, sizeof(step.ledger->step[s]));
		step.ledger->step[s].step_id = s;
		step.ledger->step[s].in_use = 1;
	}
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(memcmp(&step.ledger->step[0], &want, sizeof(want)), 0);
}

int main(void)
{
	gpus(0);
	CASE(a_stopped_holder_loses_the_lock);
	CASE(a_dead_holder_loses_the_lock);
	CASE(more_processes_than_slots_are_refused_and_come_again);
	CASE(a_step_has_nothing_of_who_had_its_place_before);
	return summary();
}

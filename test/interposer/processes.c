/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Many processes and threads on one account: racing, killed, forked, replaced by exec. */
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define LIMIT_MIB 128u
#define PROCESSES 8
#define THREADS 4
#define SHARED_FD 50 /* survives an exec */

static struct step step;

/* What the racing threads really hold, by their own count, and whether it was ever too much. */
static struct {
	uint64_t held_bytes;
	uint64_t over;
	uint64_t allocations;
	uint64_t errors;
	uint64_t stop;
} *shared;

static uint32_t next(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static CUcontext racing_context;

static void *race_thread(void *argument)
{
	uint32_t seed = (uint32_t)(uintptr_t)argument;
	CUdeviceptr pointer[8] = {0};
	uint64_t bytes[8];

	cuCtxSetCurrent(racing_context);
	for (int round = 0; round < 300; round++) {
		uint32_t i = next(&seed) % 8;
		CUresult result;

		if (pointer[i] != 0) {
			__atomic_sub_fetch(&shared->held_bytes, bytes[i], __ATOMIC_SEQ_CST);
			result = next(&seed) % 2 ? cuMemFree_v2(pointer[i]) : cuMemFreeAsync(pointer[i], NULL);
			/* Not every pointer may be freed in stream order. */
			if (result != CUDA_SUCCESS)
				result = cuMemFree_v2(pointer[i]);
			if (result != CUDA_SUCCESS)
				__atomic_add_fetch(&shared->errors, 1, __ATOMIC_SEQ_CST);
			pointer[i] = 0;
			continue;
		}
		bytes[i] = 1 + next(&seed) % (24 * MIB);
		result = next(&seed) % 2 ? cuMemAlloc_v2(&pointer[i], bytes[i]) : cuMemAllocAsync(&pointer[i], bytes[i], NULL);
		if (result == CUDA_SUCCESS) {
			__atomic_add_fetch(&shared->allocations, 1, __ATOMIC_SEQ_CST);
			if (__atomic_add_fetch(&shared->held_bytes, bytes[i], __ATOMIC_SEQ_CST) > LIMIT_MIB * MIB)
				__atomic_add_fetch(&shared->over, 1, __ATOMIC_SEQ_CST);
		} else {
			pointer[i] = 0;
			if (result != CUDA_ERROR_OUT_OF_MEMORY)
				__atomic_add_fetch(&shared->errors, 1, __ATOMIC_SEQ_CST);
		}
		if (__atomic_load_n(&step.ledger->used_bytes[0], __ATOMIC_RELAXED) > LIMIT_MIB * MIB)
			__atomic_add_fetch(&shared->over, 1, __ATOMIC_SEQ_CST);
	}
	for (int i = 0; i < 8; i++) {
		if (pointer[i] != 0) {
			__atomic_sub_fetch(&shared->held_bytes, bytes[i], __ATOMIC_SEQ_CST);
			cuMemFree_v2(pointer[i]);
		}
	}
	return NULL;
}

static void race_process(int number)
{
	pthread_t thread[THREADS];

	if (freopen("/dev/null", "w", stderr) == NULL)
		_exit(1);
	cuda_begin(0);
	cuCtxGetCurrent(&racing_context);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, race_thread, (void *)(uintptr_t)(number * 100 + i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	cuCtxSynchronize(); /* pools give back then */
	_exit(0);
}

static void racing_processes_never_pass_the_limit(void)
{
	pid_t pid[PROCESSES];

	gpus(0);
	step = step_make(1, 0, LIMIT_MIB, LIMIT_MIB);
	for (int i = 0; i < PROCESSES; i++) {
		if ((pid[i] = fork()) == 0)
			race_process(i + 1);
	}
	for (int i = 0; i < PROCESSES; i++) {
		int status = -1;

		waitpid(pid[i], &status, 0);
		CHECK_IS(status, 0);
	}
	CHECK_IS(shared->over, 0);
	CHECK_IS(shared->errors, 0);
	CHECK(shared->allocations > 1000);
	CHECK(step.ledger->refusals[0] > 0); /* else the limit was never near */
	CHECK(step.ledger->peak_bytes[0] <= LIMIT_MIB * MIB);
	CHECK_IS(step.ledger->used_bytes[0], 0);
	CHECK_IS(step_slots_bytes(&step), 0);
	CHECK_IS(step.ledger->lock, 0);
}

static void victim(uint32_t seed)
{
	CUdeviceptr pointer;

	if (freopen("/dev/null", "w", stderr) == NULL)
		_exit(1);
	cuda_begin(0);
	for (;;) {
		if (cuMemAlloc_v2(&pointer, 1 + next(&seed) % (3 * MIB)) == CUDA_SUCCESS && next(&seed) % 4 != 0)
			cuMemFree_v2(pointer);
		__atomic_add_fetch(&shared->allocations, 1, __ATOMIC_SEQ_CST);
	}
}

static void the_killed_leave_nothing_behind(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr mine, a;

	gpus(0);
	step = step_make(2, 0, LIMIT_MIB, LIMIT_MIB);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&mine, 100 * MIB), CUDA_SUCCESS);
	for (uint32_t round = 0; round < 50; round++) {
		uint64_t before = __atomic_load_n(&shared->allocations, __ATOMIC_SEQ_CST);
		pid_t pid[2];

		for (int i = 0; i < 2; i++) {
			char seed[16];

			snprintf(seed, sizeof(seed), "%u", round * 2 + (uint32_t)i);
			/* CUDA cannot be used in a fork of a process that uses it. */
			if ((pid[i] = fork()) == 0) {
				execl("/proc/self/exe", "processes", "victim", seed, NULL);
				_exit(1);
			}
		}
		while (__atomic_load_n(&shared->allocations, __ATOMIC_SEQ_CST) < before + 20 + round * 7) {
			CHECK_IS(waitpid(-1, NULL, WNOHANG), 0);
			if (failures != 0)
				return;
			sched_yield();
		}
		for (int i = 0; i < 2; i++)
			kill(pid[i], SIGKILL);
		for (int i = 0; i < 2; i++)
			waitpid(pid[i], NULL, 0);
	}
	/* All but the 100 MiB that live can be had at once, and not a byte more. */
	CHECK_IS(cuMemAlloc_v2(&a, (LIMIT_MIB - 100) * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(step.ledger->used_bytes[0], 100 * MIB);
	CHECK_IS(step_slots_bytes(&step), 100 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, (LIMIT_MIB - 100) * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 0);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(mine), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

static uint32_t slots(void)
{
	uint32_t count = 0;

	for (int i = 0; i < VGPU_MAX_PROCS; i++)
		count += step.ledger->slot[i].state == 1;
	return count;
}

static void a_forked_child_has_its_own_account(void)
{
	CUdeviceptr a;
	int status;
	pid_t pid;

	gpus(0);
	step = step_make(3, 0, LIMIT_MIB, LIMIT_MIB);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	pid = fork();
	if (pid == 0) {
		/* The parent's pointer is nothing to this process, whatever the driver says. */
		cuMemFree_v2(a);
		_exit(step.ledger->used_bytes[0] == 100 * MIB ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	CHECK_IS(status, 0);
	pid = fork();
	if (pid == 0)
		_exit(0); /* and an exit gives nothing back */
	waitpid(pid, &status, 0);
	CHECK_IS(step.ledger->used_bytes[0], 100 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

static int vm_child(void *argument)
{
	cuMemFree_v2(*(CUdeviceptr *)argument);
	return 0;
}

static void a_child_in_the_same_memory_shares_the_account(void)
{
	static char stack[256 * 1024] __attribute__((aligned(16)));
	CUdeviceptr a, b;
	pid_t pid;

	gpus(0);
	step = step_make(4, 0, LIMIT_MIB, LIMIT_MIB);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 10 * MIB), CUDA_SUCCESS);
	pid = clone(vm_child, stack + sizeof(stack), CLONE_VM | CLONE_VFORK | SIGCHLD, &b);
	waitpid(pid, NULL, 0);
	CHECK_IS(slots(), 1);
	CHECK(step.ledger->used_bytes[0] == 100 * MIB || step.ledger->used_bytes[0] == 110 * MIB);
	CHECK_IS(step_slots_bytes(&step), step.ledger->used_bytes[0]);
	pid = vfork();
	if (pid == 0) {
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
	CHECK_IS(slots(), 1);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
}

static void exec_ends_what_the_program_held(void)
{
	CUdeviceptr a;
	int pipes[2];
	char byte;
	pid_t pid;

	gpus(0);
	step = step_make(5, 0, LIMIT_MIB, LIMIT_MIB);
	CHECK_IS(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		CUdeviceptr held;

		cuda_begin(0);
		dup2(pipes[1], 1);
		if (cuMemAlloc_v2(&held, 100 * MIB) == CUDA_SUCCESS)
			execl("/bin/sh", "sh", "-c", "echo; exec sleep 60", NULL);
		_exit(1);
	}
	CHECK_IS(read(pipes[0], &byte, 1), 1);
	/* It runs on as another program, without GPU memory. */
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 128 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 128 * MIB);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int exec_again(void)
{
	cuda_begin(0);
	return 0;
}

static void exec_into_a_cuda_program_takes_the_slot_over(void)
{
	int status;
	pid_t pid;

	gpus(0);
	step = step_make(6, 0, LIMIT_MIB, LIMIT_MIB);
	pid = fork();
	if (pid == 0) {
		CUdeviceptr held;

		cuda_begin(0);
		if (cuMemAlloc_v2(&held, 100 * MIB) == CUDA_SUCCESS)
			execl("/proc/self/exe", "processes", "again", NULL);
		_exit(1);
	}
	waitpid(pid, &status, 0);
	CHECK_IS(status, 0);
	CHECK_IS(slots(), 1);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "again") == 0)
		return exec_again();
	if (argc == 1 && (dup2(memfd_create("shared", 0), SHARED_FD) != SHARED_FD || ftruncate(SHARED_FD, sizeof(*shared)) != 0))
		return 1;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
	if (argc > 2 && strcmp(argv[1], "victim") == 0)
		victim((uint32_t)atoi(argv[2]));
	gpus(0);
	CASE(racing_processes_never_pass_the_limit);
	CASE(the_killed_leave_nothing_behind);
	CASE(a_forked_child_has_its_own_account);
	CASE(a_child_in_the_same_memory_shares_the_account);
	CASE(exec_ends_what_the_program_held);
	CASE(exec_into_a_cuda_program_takes_the_slot_over);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Processes on one account: forked, sharing memory, replaced by exec. Racing ones are in account/racing.c,
 * killed ones in account/killed.c. */
#include "harness.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>

#define LIMIT_MIB 128u

static struct step step;

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

#if defined(__SANITIZE_THREAD__) && __GNUC__ >= 13
	printf("SKIP a_child_in_the_same_memory_shares_the_account: this thread sanitizer takes it for a "
	       "process of its own\n");
	return;
#endif
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
			execl("/proc/self/exe", "self", "again", NULL);
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
	gpus(0);
	CASE(a_forked_child_has_its_own_account);
	CASE(a_child_in_the_same_memory_shares_the_account);
	CASE(exec_ends_what_the_program_held);
	CASE(exec_into_a_cuda_program_takes_the_slot_over);
	return summary();
}

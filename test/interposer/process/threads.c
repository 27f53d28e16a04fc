/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Threads that have no context, that end, and that are in the driver when their process ends; and what
 * a process has set up for itself. */
#include "harness.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define THREADS 4

static struct step step;

static void begin(void)
{
	gpus(0);
	step = step_make(100 + (uint32_t)getpid(), 0, 100, 100);
	cuda_begin(0);
}

static void *without_context(void *unused)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemGenericAllocationHandle handle;
	size_t free_bytes = 7, total_bytes = 7;
	CUdeviceptr a;

	(void)unused;
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_ERROR_INVALID_CONTEXT);
	CHECK_IS(step.ledger->used_bytes[0], 0);
	/* This names its device itself, as libraries for many GPUs do it in threads of their own. */
	CHECK_IS(cuMemCreate(&handle, 10 * MIB, &prop, 0), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 10 * MIB);
	CHECK_IS(cuMemCreate(&handle, 92 * MIB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	return NULL;
}

static void a_thread_without_a_context_is_charged_by_device(void)
{
	pthread_t thread;

	begin();
	CHECK_IS(pthread_create(&thread, NULL, without_context, NULL), 0);
	CHECK_IS(pthread_join(thread, NULL), 0);
}

static pthread_key_t at_end;
static CUcontext context;

static void end_of_thread(void *pointer)
{
	CUdeviceptr a;

	CHECK_IS(cuMemFree_v2((CUdeviceptr)(uintptr_t)pointer), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 20 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
}

static void *leave_it_to_the_end(void *unused)
{
	CUdeviceptr a = 0;

	(void)unused;
	cuCtxSetCurrent(context);
	CHECK_IS(cuMemAlloc_v2(&a, 20 * MIB), CUDA_SUCCESS);
	pthread_setspecific(at_end, (void *)(uintptr_t)a);
	return NULL;
}

static void a_thread_may_free_and_allocate_while_it_ends(void)
{
	pthread_t thread[THREADS];

	begin();
	cuCtxGetCurrent(&context);
	CHECK_IS(pthread_key_create(&at_end, end_of_thread), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, leave_it_to_the_end, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		CHECK_IS(pthread_join(thread[i], NULL), 0);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

static uint64_t calls;

static void *never_stop(void *unused)
{
	CUdeviceptr a;

	(void)unused;
	cuCtxSetCurrent(context);
	for (;;) {
		if (cuMemAlloc_v2(&a, 30 * MIB) == CUDA_SUCCESS)
			cuMemFree_v2(a);
		__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
	}
	return NULL;
}

static void one_more_call(void)
{
	CUdeviceptr a;

	if (cuMemAlloc_v2(&a, 2 * MIB) == CUDA_SUCCESS)
		cuMemFree_v2(a);
}

static void exit_in_the_middle_of_calls_ends_the_process(void)
{
	CUdeviceptr a;

	gpus(0);
	step = step_make(9, 0, 100, 100);
	for (int round = 0; round < 10; round++) {
		int status = -1;
		pid_t pid = fork();

		if (pid == 0) {
			pthread_t thread;

			alarm(30);
			library_quiet();
			cuda_begin(0);
			cuCtxGetCurrent(&context);
			atexit(one_more_call);
			for (int i = 0; i < THREADS; i++)
				pthread_create(&thread, NULL, never_stop, NULL);
			while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) < 50u * (unsigned)round)
				usleep(100);
			exit(0);
		}
		waitpid(pid, &status, 0);
		CHECK_IS(status, 0);
	}
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 100 * MIB);
}

static void signals_stay_the_programs_own(void)
{
	struct sigaction before[64], after;
	sigset_t mask_before, mask_after;
	CUdeviceptr a;

	for (int s = 1; s < 64; s++)
		if (sigaction(s, NULL, &before[s]) != 0)
			before[s].sa_handler = NULL;
	sigprocmask(SIG_SETMASK, NULL, &mask_before);
	begin();
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	for (int s = 1; s < 64; s++)
		if (sigaction(s, NULL, &after) == 0)
			CHECK(after.sa_handler == before[s].sa_handler);
	sigprocmask(SIG_SETMASK, NULL, &mask_after);
	/* The kernel writes a part of a sigset_t alone. */
	for (int s = 1; s < 64; s++)
		CHECK_IS(sigismember(&mask_after, s), sigismember(&mask_before, s));
}

int main(void)
{
	gpus(0);
	CASE(a_thread_without_a_context_is_charged_by_device);
	CASE(a_thread_may_free_and_allocate_while_it_ends);
	CASE(exit_in_the_middle_of_calls_ends_the_process);
	CASE(signals_stay_the_programs_own);
	return summary();
}

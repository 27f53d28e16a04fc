/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "harness.h"

#include <pthread.h>

static uint32_t *word;
static CUstream stream;
static CUcontext context;

/* A stream that waits for the word, which is 1 when the thread has said so. */
static void hold_back(const char *mode)
{
	configure(mode);
	start_cuda();
	OK(cuCtxGetCurrent(&context));
	OK(cuMemAllocHost_v2((void **)&word, 4096));
	OK(cuStreamCreate(&stream, SIM_STREAM_NON_BLOCKING));
	*word = 0;
	OK(cuStreamWaitValue32(stream, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_EQ));
}

static int returned;

static void *allocate(void *unused)
{
	CUdeviceptr block;

	OK(cuCtxSetCurrent(context));
	OK(cuMemAlloc_v2(&block, SIM_MIB));
	__atomic_store_n(&returned, 1, __ATOMIC_SEQ_CST);
	return unused;
}

static void *ask(void *unused)
{
	OK(cuCtxSetCurrent(context));
	cuStreamQuery(stream);
	__atomic_store_n(&returned, 2, __ATOMIC_SEQ_CST);
	return unused;
}

static pthread_t begin(void *(*run)(void *))
{
	pthread_t thread;

	OK(pthread_create(&thread, NULL, run, NULL));
	return thread;
}

/* It would have returned by then. */
static void give_time(void)
{
	struct timespec pause = { .tv_nsec = 50000000 };

	nanosleep(&pause, NULL);
}

TEST(a_call_waits_for_what_lies_before_it)
{
	pthread_t caller;

	hold_back("waits=1\n");
	caller = begin(allocate);
	give_time();
	EQ(__atomic_load_n(&returned, __ATOMIC_SEQ_CST), 0);
	EQ(cuStreamQuery(stream), SIM_CUDA_ERROR_NOT_READY);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(pthread_join(caller, NULL));
	EQ(returned, 1);
}

TEST(a_call_that_waits_keeps_others_out)
{
	pthread_t caller, other;

	hold_back("waits=2\n");
	caller = begin(allocate);
	give_time();
	other = begin(ask);
	give_time();
	EQ(__atomic_load_n(&returned, __ATOMIC_SEQ_CST), 0);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	OK(pthread_join(caller, NULL));
	OK(pthread_join(other, NULL));
	EQ(returned != 0, 1);
}

TEST(calls_wait_for_nothing_unless_told)
{
	pthread_t caller;

	hold_back("");
	caller = begin(allocate);
	OK(pthread_join(caller, NULL));
	EQ(returned, 1);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
}

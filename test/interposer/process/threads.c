/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Threads that have no context, that end, and that are in the driver when their process ends; and what
 * a process has set up for itself. */
#include "busy.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
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

#define ANYBODY 65534
#define LONG_COPY_BYTES (8 * MIB)

static CUresult launch(CUfunction function)
{
	unsigned us = 100;
	void *params[] = {&us};

	return cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, NULL, params, NULL);
}

/* As `ulimit -u 0` does, but later: the driver has its threads by then. Root is not bound by it. */
static struct rlimit no_thread_may_start(void)
{
	struct rlimit before, none;

	CHECK(getuid() != 0 || setuid(ANYBODY) == 0);
	CHECK_IS(getrlimit(RLIMIT_NPROC, &before), 0);
	none = (struct rlimit){0, before.rlim_max};
	CHECK_IS(setrlimit(RLIMIT_NPROC, &none), 0);
	return before;
}

static void no_share_is_left_unkept_for_want_of_a_thread(void)
{
	struct rlimit before;
	CUfunction function;
	CUdeviceptr block;

	step = step_with_share(100 + (uint32_t)getpid(), 50);
	cuda_begin(0);
	function = busy_kernel();
	CHECK_IS(cuMemAlloc_v2(&block, 2 * LONG_COPY_BYTES), CUDA_SUCCESS);
	stderr_catch();
	before = no_thread_may_start();
	for (int i = 0; i < 3; i++)
		CHECK_IS(launch(function), CUDA_ERROR_NOT_PERMITTED);
	CHECK_IS(cuMemcpyDtoD_v2(block, block + LONG_COPY_BYTES, LONG_COPY_BYTES), CUDA_ERROR_NOT_PERMITTED);
	CHECK(strstr(stderr_caught(), "ulimit -u") != NULL);
	CHECK_IS(step_busy_ns(&step), 0);
	CHECK_IS(setrlimit(RLIMIT_NPROC, &before), 0);
	CHECK_IS(launch(function), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK(step_busy_ns_when_seen(&step, 0, 50000, 2000000000) > 0);
}

/* A graph without memory nodes, or with one that is freed in it. */
static CUgraphExec graph_of(size_t bytes)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params = {
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}},
		.bytesize = bytes,
	};
	CUgraphExec exec = NULL;
	CUgraphNode node, end;
	CUgraph graph;

	CHECK_IS(cuGraphCreate(&graph, 0), CUDA_SUCCESS);
	if (bytes != 0) {
		CHECK_IS(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params), CUDA_SUCCESS);
		CHECK_IS(cuGraphAddMemFreeNode(&end, graph, &node, 1, params.dptr), CUDA_SUCCESS);
	}
	CHECK_IS(cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
	CHECK_IS(cuGraphDestroy(graph), CUDA_SUCCESS);
	return exec;
}

static CUresult launch_graph(CUgraphExec exec, CUresult as_expected)
{
	CUresult result = cuGraphLaunch(exec, NULL);

	CHECK_IS(cuGraphLaunch_ptsz(exec, NULL), as_expected);
	return result;
}

/* Nor does anything stay charged for what was not launched. */
static void no_graph_is_launched_unkept_for_want_of_a_thread(void)
{
	CUgraphExec plain, taking;
	struct rlimit before;
	unsigned long long busy;
	CUdeviceptr all;

	step = step_with_share(100 + (uint32_t)getpid(), 50);
	cuda_begin(0);
	plain = graph_of(0);
	taking = graph_of(64 * MIB);
	stderr_catch();
	before = no_thread_may_start();
	CHECK_IS(launch_graph(plain, CUDA_ERROR_NOT_PERMITTED), CUDA_ERROR_NOT_PERMITTED);
	CHECK_IS(launch_graph(taking, CUDA_ERROR_NOT_PERMITTED), CUDA_ERROR_NOT_PERMITTED);
	CHECK(strstr(stderr_caught(), "ulimit -u") != NULL);
	CHECK_IS(step.ledger->used_bytes[0], 0);
	CHECK_IS(cuMemAlloc_v2(&all, 1000 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(all), CUDA_SUCCESS);
	CHECK_IS(cuSimBusy(0, &busy), CUDA_SUCCESS);
	CHECK_IS(busy, 0);
	CHECK_IS(setrlimit(RLIMIT_NPROC, &before), 0);
	CHECK_IS(launch_graph(plain, CUDA_SUCCESS), CUDA_SUCCESS);
	CHECK_IS(launch_graph(taking, CUDA_SUCCESS), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 64 * MIB);
}

/* Kernels of 100 µs on both GPUs, which the step has slices of. */
static CUresult launch_on_both(const CUstream stream[2], CUfunction function)
{
	unsigned us = 100;
	void *params[] = {&us};
	CUDA_LAUNCH_PARAMS list[] = {
		{function, 1, 1, 1, 32, 1, 1, 0, stream[0], params},
		{function, 1, 1, 1, 32, 1, 1, 0, stream[1], params},
	};

	return cuLaunchCooperativeKernelMultiDevice(list, 2, 0);
}

static void no_launch_on_several_gpus_goes_unkept_for_want_of_a_thread(void)
{
	unsigned long long busy[2];
	struct rlimit before;
	CUfunction function;
	CUstream stream[2];
	CUcontext second;

	step = step_with_share(100 + (uint32_t)getpid(), 50);
	step.limits->device[1] = step.limits->device[0];
	strcpy(step.limits->device[1].uuid, UUID1);
	step.limits->device_count = 2;
	cuda_begin(0);
	CHECK_IS(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	function = busy_kernel();
	CHECK_IS(cuStreamCreate(&stream[0], 0), CUDA_SUCCESS);
	CHECK_IS(cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
	CHECK_IS(cuCtxSetCurrent(second), CUDA_SUCCESS);
	CHECK_IS(cuStreamCreate(&stream[1], 0), CUDA_SUCCESS);
	CHECK_IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
	stderr_catch();
	before = no_thread_may_start();
	for (int i = 0; i < 3; i++)
		CHECK_IS(launch_on_both(stream, function), CUDA_ERROR_NOT_PERMITTED);
	CHECK(strstr(stderr_caught(), "ulimit -u") != NULL);
	for (int d = 0; d < 2; d++) {
		CHECK_IS(cuSimBusy(d, &busy[d]), CUDA_SUCCESS);
		CHECK_IS(busy[d], 0);
	}
	CHECK_IS(setrlimit(RLIMIT_NPROC, &before), 0);
	CHECK_IS(launch_on_both(stream, function), CUDA_SUCCESS);
	for (int d = 0; d < 2; d++) {
		CHECK_IS(cuStreamSynchronize(stream[d]), CUDA_SUCCESS);
		CHECK_IS(cuSimBusy(d, &busy[d]), CUDA_SUCCESS);
		CHECK(busy[d] >= 100000);
	}
}

/* on_limit_failure: open. */
static void where_a_failure_is_open_a_program_without_a_thread_goes_unkept(void)
{
	CUgraphExec plain, taking;
	CUfunction function;
	CUstream stream[2];
	CUdeviceptr a;

	step = step_with_share(100 + (uint32_t)getpid(), 50);
	step.limits->flags |= VGPU_FAIL_OPEN;
	cuda_begin(0);
	function = busy_kernel();
	plain = graph_of(0);
	taking = graph_of(64 * MIB);
	for (int i = 0; i < 2; i++)
		CHECK_IS(cuStreamCreate(&stream[i], 0), CUDA_SUCCESS);
	stderr_catch();
	no_thread_may_start();
	CHECK_IS(launch(function), CUDA_SUCCESS);
	CHECK_IS(launch_graph(plain, CUDA_SUCCESS), CUDA_SUCCESS);
	CHECK_IS(launch_graph(taking, CUDA_SUCCESS), CUDA_SUCCESS);
	CHECK_IS(launch_on_both(stream, function), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_IS(step_busy_ns(&step), 0);
	CHECK(strstr(stderr_caught(), "nothing can be launched") == NULL);
	/* The limit of memory needs no thread. */
	CHECK_IS(step.ledger->used_bytes[0], 64 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 1001 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

int main(void)
{
	gpus(0);
	CASE(a_thread_without_a_context_is_charged_by_device);
	CASE(a_thread_may_free_and_allocate_while_it_ends);
	CASE(exit_in_the_middle_of_calls_ends_the_process);
	CASE(signals_stay_the_programs_own);
	CASE(no_share_is_left_unkept_for_want_of_a_thread);
	CASE(no_graph_is_launched_unkept_for_want_of_a_thread);
	CASE(no_launch_on_several_gpus_goes_unkept_for_want_of_a_thread);
	CASE(where_a_failure_is_open_a_program_without_a_thread_goes_unkept);
	return summary();
}

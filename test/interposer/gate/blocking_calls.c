/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is held back is let go, whichever call of the driver waits for it: in the program's threads or in the
 * one that looks after them, also when a call never returns, and in a process that is stopped, forks or has
 * one core. */
#include "slices.h"

#include <dlfcn.h>
#include <pthread.h>

#define DEBT_NS (40 * MS)
#define KERNEL_US 200u
#define LONG_US 20000u
/* By then the library's threads sleep, when nothing is in flight. */
#define PAUSE_NS (60 * MS)
/* Who has not returned by then hangs. */
#define HANGS_S (20 * PATIENCE)
#define BLOCK_BYTES (8 * MIB)

CUresult cuMemHostAlloc(void **pointer, size_t bytes, unsigned int flags);
CUresult cuMemFreeHost(void *pointer);

static struct step step;
static CUfunction function;
static CUstream stream;
static CUdeviceptr a, b;
static CUcontext context;

static void begin(uint32_t job, const char *waits)
{
	alarm(HANGS_S);
	gpus(0);
	gpus_also(waits);
	step = step_with_share(job, 50);
	step.limits->device[0].step_mem_bytes = step.limits->device[0].job_mem_bytes = 3000 * MIB;
	cuda_begin(0);
	CHECK_IS(cuCtxGetCurrent(&context), CUDA_SUCCESS);
	CHECK_IS(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	CHECK(cuMemAlloc_v2(&a, BLOCK_BYTES) == CUDA_SUCCESS &&
	      cuMemAlloc_v2(&b, BLOCK_BYTES) == CUDA_SUCCESS);
	function = busy_kernel();
	for (int i = 0; i < 12; i++) {
		busy(function, KERNEL_US, stream);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	}
}

static void pause_for(uint64_t ns)
{
	nanosleep(&(struct timespec){.tv_nsec = (long)ns}, NULL);
}

/* Kernels that nothing of the share is left for. */
static void hold_back(CUstream where)
{
	__atomic_store_n(&step.ledger->share_free_at_ns[0], now_ns() + DEBT_NS, __ATOMIC_RELAXED);
	for (int i = 0; i < 4; i++)
		busy(function, KERNEL_US, where);
}

static uint64_t let_go(void)
{
	return __atomic_load_n(&step.ledger->waited_ns[0], __ATOMIC_RELAXED);
}

/* ---- calls ---- */

static CUgraphExec exec;

static void make_graph(void)
{
	CUdeviceptr block;
	CUgraph graph;

	CHECK_IS(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
	CHECK(cuMemAllocAsync(&block, BLOCK_BYTES, stream) == CUDA_SUCCESS &&
	      cuMemFreeAsync(block, stream) == CUDA_SUCCESS);
	CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS &&
	      cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
}

static CUresult launch_graph(void)
{
	return cuGraphLaunch(exec, stream);
}

static CUresult launch_other_graph(void)
{
	make_graph();
	return launch_graph();
}

static CUresult copy(void)
{
	return cuMemcpyDtoD_v2(a, b, BLOCK_BYTES);
}

static CUresult fill(void)
{
	return cuMemsetD8_v2(a, 1, BLOCK_BYTES);
}

static CUresult allocate(void)
{
	CUdeviceptr block;
	CUresult result = cuMemAlloc_v2(&block, BLOCK_BYTES);

	return result == CUDA_SUCCESS ? cuMemFree_v2(block) : result;
}

static CUresult allocate_host(void)
{
	CUresult result;
	void *block;

	result = cuMemHostAlloc(&block, BLOCK_BYTES, 0);
	return result == CUDA_SUCCESS ? cuMemFreeHost(block) : result;
}

/* The same handle again and again, so that the kernel is known and is launched for the first time all the
 * same. */
static CUresult load(void)
{
	unsigned us = KERNEL_US;
	void *params[] = {&us};
	CUfunction loaded;
	CUmodule module;

	CHECK_IS(cuModuleLoadData(&module, ".visible .entry simgpu_busy_us(.param .u32 us)"), CUDA_SUCCESS);
	CHECK_IS(cuModuleGetFunction(&loaded, module, "simgpu_busy_us"), CUDA_SUCCESS);
	pause_for(PAUSE_NS / 2);
	CHECK_IS(cuLaunchKernel(loaded, 1, 1, 1, 32, 1, 1, 0, stream, params, NULL), CUDA_SUCCESS);
	return cuModuleUnload(module);
}

static CUresult set_limit(void)
{
	return cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048);
}

static CUresult end_stream(void)
{
	CUresult result = cuStreamDestroy_v2(stream);

	CHECK_IS(cuStreamCreate(&stream, 1), CUDA_SUCCESS);
	return result;
}

static CUresult end_context(void)
{
	CUcontext other;

	CHECK(cuCtxCreate_v2(&other, 0, 0) == CUDA_SUCCESS);
	hold_back(NULL);
	CHECK_IS(cuCtxDestroy_v2(other), CUDA_SUCCESS);
	return cuCtxSetCurrent(context);
}

static const struct {
	const char *name;
	CUresult (*call)(void);
} calls[] = {
	{"cuGraphLaunch", launch_graph}, {"cuGraphLaunch of another graph", launch_other_graph}, {"cuMemcpyDtoD", copy},
	{"cuMemsetD8", fill}, {"cuMemAlloc, cuMemFree", allocate}, {"cuMemHostAlloc, cuMemFreeHost", allocate_host},
	{"cuModuleLoadData to cuModuleUnload", load}, {"cuCtxSetLimit", set_limit}, {"cuStreamDestroy", end_stream},
	{"cuCtxDestroy", end_context},
};

/* Each behind what is held back, and each when the library's threads sleep and the call's own launch is
 * timed. */
static void make_calls(void)
{
	make_graph();
	for (unsigned c = 0; c < sizeof(calls) / sizeof(calls[0]); c++) {
		for (int i = 0; i < 4; i++) {
			uint64_t since = now_ns();

			if (i % 2 == 0)
				hold_back(i == 0 ? stream : NULL);
			else
				pause_for(PAUSE_NS);
			CHECK_IS(calls[c].call(), CUDA_SUCCESS);
			if (now_ns() - since > 5000 * MS * PATIENCE)
				fprintf(stderr, "%s took %llu ms\n", calls[c].name,
					(unsigned long long)((now_ns() - since) / MS)),
					failures++;
		}
	}
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void calls_that_wait_return(void)
{
	begin(1, "waits=1");
	make_calls();
}

/* The poller's own questions do not return either then. */
static void calls_that_keep_others_out_return(void)
{
	begin(2, "waits=2");
	make_calls();
}

static void also_on_one_core(void)
{
	cpu_set_t one;
	int core = sched_getcpu();

	CPU_ZERO(&one);
	CPU_SET(core < 0 ? 0 : core, &one);
	CHECK_IS(sched_setaffinity(0, sizeof(one), &one), 0);
	begin(3, "waits=2");
	make_calls();
}

/* ---- a call that never returns ---- */

static void *wait_for_ever(void *unused)
{
	CHECK_IS(cuCtxSetCurrent(context), CUDA_SUCCESS);
	allocate();
	return unused;
}

static void let_go_although_a_call_never_returns(uint32_t job, const char *waits)
{
	CUstream never;
	pthread_t thread;
	uint64_t before, since;
	uint32_t *word;

	begin(job, waits);
	for (int i = 0; i < 3; i++) {
		busy(function, LONG_US, stream);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	}
	CHECK(cuMemHostAlloc((void **)&word, 4096, 0) == CUDA_SUCCESS &&
	      cuStreamCreate(&never, 1) == CUDA_SUCCESS);
	*word = 0;
	/* The poller has something to ask about meanwhile. */
	__atomic_store_n(&step.ledger->share_free_at_ns[0], 1, __ATOMIC_RELAXED);
	busy(function, LONG_US, NULL);
	CHECK_IS(cuStreamWaitValue32_v2(never, (CUdeviceptr)(uintptr_t)word, 1, CU_STREAM_WAIT_VALUE_GEQ),
		 CUDA_SUCCESS);
	before = let_go();
	hold_back(stream);
	CHECK_IS(pthread_create(&thread, NULL, wait_for_ever, NULL), 0);
	for (since = now_ns(); let_go() == before && now_ns() - since < 5000 * MS * PATIENCE;)
		sched_yield();
	CHECK(let_go() != before);
	__atomic_store_n(word, 1, __ATOMIC_RELEASE);
	CHECK_IS(pthread_join(thread, NULL), 0);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

static void what_is_held_back_goes_although_a_call_never_returns(void)
{
	let_go_although_a_call_never_returns(4, "waits=1");
}

static void also_when_the_keeper_is_in_one(void)
{
	let_go_although_a_call_never_returns(5, "waits=2");
}

/* ---- the process ---- */

static void a_stopped_process_goes_on_when_it_is_continued(void)
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		begin(6, "waits=2");
		make_graph();
		for (int i = 0; i < 10; i++) {
			hold_back(stream);
			raise(SIGSTOP);
			CHECK_IS(i % 2 == 0 ? allocate() : launch_graph(), CUDA_SUCCESS);
			pause_for(i % 3 == 0 ? PAUSE_NS : 0);
		}
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
		_exit(failures == 0 ? 0 : 1);
	}
	for (;;) {
		CHECK(waitpid(pid, &status, WUNTRACED) == pid);
		if (!WIFSTOPPED(status))
			break;
		/* Its debt is over, and all it would have done in between was not done. */
		pause_for(DEBT_NS * 2);
		kill(pid, SIGCONT);
	}
	CHECK_IS(status, 0);
}

/* The child has nothing of what lets go, and takes nothing of it from its parent. */
static void who_forks_goes_on(void)
{
	begin(7, "waits=2");
	for (int i = 0; i < 5; i++) {
		int status = -1;
		pid_t pid;

		hold_back(stream);
		fflush(NULL);
		pid = fork();
		if (pid == 0) {
			/* Its driver is not to be used, and says so at once. */
			_exit(allocate() == CUDA_SUCCESS ? 1 : 0);
		}
		CHECK_IS(allocate(), CUDA_SUCCESS);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
		CHECK(waitpid(pid, &status, 0) == pid);
		CHECK_IS(status, 0);
	}
}

static void who_ends_with_all_of_it_ends(void)
{
	int status = -1;
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (pid == 0) {
		begin(8, "waits=2");
		make_graph();
		hold_back(stream);
		atexit((void (*)(void))(uintptr_t)cuCtxSynchronize);
		hold_back(NULL);
		exit(failures == 0 ? 0 : 1);
	}
	CHECK(waitpid(pid, &status, 0) == pid);
	CHECK_IS(status, 0);
}

/* ---- the dynamic linker's lock ---- */

static void work_at_load(void)
{
	begin(9, "waits=1");
	hold_back(stream);
	CHECK_IS(allocate(), CUDA_SUCCESS);
	CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
}

/* The poller may not look up a name until the library is loaded, which waits for what is held back. */
static void who_works_while_a_library_is_loaded_goes_on(void)
{
	char path[600], address[32];

	alarm(HANGS_S);
	snprintf(path, sizeof(path), "%s/../test-interposer/helpers/constructor.so", getenv("VGPU_TEST_SIM"));
	snprintf(address, sizeof(address), "%llx", (unsigned long long)(uintptr_t)work_at_load);
	setenv("VGPU_TEST_AT_LOAD", address, 1);
	CHECK(dlopen(path, RTLD_NOW) != NULL);
	unsetenv("VGPU_TEST_AT_LOAD");
	CHECK(let_go() != 0);
}

int main(void)
{
	gpus(0);
		CASE(calls_that_wait_return);
		CASE(calls_that_keep_others_out_return);
		CASE(also_on_one_core);
	CASE_OF_TIME(what_is_held_back_goes_although_a_call_never_returns);
	CASE_OF_TIME(also_when_the_keeper_is_in_one);
	CASE(a_stopped_process_goes_on_when_it_is_continued);
	CASE(who_forks_goes_on);
	CASE(who_ends_with_all_of_it_ends);
	CASE(who_works_while_a_library_is_loaded_goes_on);
	return summary();
}

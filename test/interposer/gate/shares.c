/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Shares of the GPU's time, with kernels of known length on the simulated driver. */
#include "busy.h"

#include <pthread.h>
#include <sched.h>

static uint32_t spoiling;

static void *spoil(void *ledger)
{
	struct vgpu_buckets *buckets = &((struct vgpu_ledger *)ledger)->buckets[0];
	uint64_t word = 1;

	while (__atomic_load_n(&spoiling, __ATOMIC_RELAXED)) {
		word = word * 6364136223846793005u + 1442695040888963407u;
		__atomic_store_n(&buckets->word[word >> 32 & (VGPU_BUCKETS - 1)], word >> (word & 31),
				 __ATOMIC_RELAXED);
		/* What is full already, and what lies ahead of all times. */
		__atomic_store_n(&buckets->word[word >> 40 & (VGPU_BUCKETS - 1)],
				 word & 1 ? UINT64_MAX : (now_ns() >> 16) << 17 | 65536, __ATOMIC_RELAXED);
	}
	return NULL;
}

/* Launches one kernel after the other for a while. What part of it the GPU was kept busy, in thousandths. */
static unsigned keep_busy(CUfunction function, unsigned us, uint64_t for_ns)
{
	uint64_t since = now_ns(), launched = 0, took;

	for (; now_ns() - since < for_ns; launched++)
		busy(function, us, NULL);
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	took = now_ns() - since;
	return (unsigned)(launched * us * 1000000 / took);
}

/* Never above the share. Below it when somebody else has kept this machine's cores busy: then again. */
#define CHECK_SHARE(function, us, for_ns, want)                                                       \
	do {                                                                                          \
		unsigned got_ = 0;                                                                    \
		for (int try_ = 0; try_ < 20 && got_ < (want) - 20; try_++) {                         \
			got_ = keep_busy(function, us, for_ns);                                       \
			CHECK(got_ <= (want) + 20);                                                   \
		}                                                                                     \
		if (got_ < (want) - 20)                                                               \
			fprintf(stderr, "%s:%d: %u of 1000, not %u\n", __FILE__, __LINE__, got_, want), failures++; \
	} while (0)

static void kernels_get_their_share(void)
{
	struct step step = step_with_share(1, 25);
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	CHECK_SHARE(function, 1000, 600000000, 250);
	CHECK_SHARE(function, 100, 600000000, 250);
	CHECK(step.ledger->waited_ns[0] > 0);
}

/* The job's slices have different shares; what is used of one GPU says nothing of the other. */
static void each_gpu_has_its_own_share(void)
{
	struct step step = step_with_share(9, 25);
	nvmlUtilization_t first = {0}, second = {0};
	nvmlDevice_t device;

	step.limits->device[1] = step.limits->device[0];
	strcpy(step.limits->device[1].uuid, UUID1);
	step.limits->device[1].sm_percent = step.limits->device[1].job_sm_percent = 60;
	step.limits->device_count = 2;
	cuda_begin(1);
	CHECK_SHARE(busy_kernel(), 1000, 600000000, 600);
	CHECK(step.ledger->busy_ns[0] == 0 && step.ledger->busy_ns[1] > 0 && step.ledger->waited_ns[0] == 0);
	CHECK(nvmlInit_v2() == NVML_SUCCESS);
	CHECK(nvmlDeviceGetHandleByIndex_v2(0, &device) == NVML_SUCCESS);
	CHECK_IS(nvmlDeviceGetUtilizationRates(device, &first), NVML_SUCCESS);
	CHECK(nvmlDeviceGetHandleByIndex_v2(1, &device) == NVML_SUCCESS);
	CHECK_IS(nvmlDeviceGetUtilizationRates(device, &second), NVML_SUCCESS);
	CHECK(first.gpu == 0 && second.gpu > 0);
	cuda_begin(0);
	CHECK_SHARE(busy_kernel(), 1000, 600000000, 250);
	CHECK(step.ledger->busy_ns[0] > 0);
}

/* Who writes it has another share as long as it does, and then its own again. */
static void garbage_in_the_pieces_goes_by(void)
{
	struct step step = step_with_share(7, 25);
	CUfunction function;
	pthread_t thread;

	cuda_begin(0);
	function = busy_kernel();
	spoiling = 1;
	CHECK_IS(pthread_create(&thread, NULL, spoil, step.ledger), 0);
	keep_busy(function, 1000, 300000000);
	__atomic_store_n(&spoiling, 0, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	/* What was counted wrongly is over after that. */
	keep_busy(function, 1000, 600000000);
	CHECK_SHARE(function, 1000, 600000000, 250);
}

static void the_ledger_knows_what_was_used(void)
{
	struct step step = step_with_share(2, 60);
	CUfunction function;
	uint64_t before;

	cuda_begin(0);
	function = busy_kernel();
	busy(function, 500, NULL); /* the length of the first can only be guessed */
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	for (int i = 0; i < 5; i++)
		busy(function, 500, NULL);
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	before = step_busy_ns(&step);
	for (int i = 0; i < 400; i++)
		busy(function, 500, NULL);
	CHECK_WITHIN(step_busy_ns_when_seen(&step, before, 196000000, 5000000000u), 196000000, 210000000);
	CHECK_IS(__atomic_load_n(&step.ledger->step[0].busy_ns[0], __ATOMIC_RELAXED), step_busy_ns(&step));
}

static uint32_t launching;

static void *launch_on(void *context)
{
	CUfunction function;

	CHECK(cuCtxSetCurrent(context) == CUDA_SUCCESS);
	function = busy_kernel();
	while (__atomic_load_n(&launching, __ATOMIC_RELAXED))
		busy(function, 2000, NULL);
	return NULL;
}

/* A thread is away while its first kernel runs, so that nobody can see how long that took: no others are let
 * through for the little that was seen of it, for which the job would wait a second. */
static void a_launch_that_returns_late_opens_no_way(void)
{
	struct step step = step_with_share(10, 10);
	uint64_t since = now_ns(), now, free_at, ahead = 0;
	CUcontext context;
	pthread_t thread;

	gpus_also("first_us=3000");
	cuda_begin(0);
	CHECK(cuCtxGetCurrent(&context) == CUDA_SUCCESS);
	__atomic_store_n(&launching, 1, __ATOMIC_RELAXED);
	CHECK(pthread_create(&thread, NULL, launch_on, context) == 0);
	while ((now = now_ns()) - since < 500000000) {
		free_at = __atomic_load_n(&step.ledger->share_free_at_ns[0], __ATOMIC_RELAXED);
		ahead = free_at > now && free_at - now > ahead ? free_at - now : ahead;
		usleep(1000);
	}
	__atomic_store_n(&launching, 0, __ATOMIC_RELAXED);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(step_busy_ns(&step) > 0);
	CHECK(ahead < 300000000);
}

static void no_cap_holds_nothing_back(void)
{
	struct step step = step_with_share(3, 0);
	CUfunction function;
	unsigned got = 0;

	cuda_begin(0);
	function = busy_kernel();
	for (int try = 0; try < 20 && got <= 950; try++)
		got = keep_busy(function, 1000, 300000000);
	CHECK(got > 950);
	CHECK_IS(step.ledger->waited_ns[0], 0);
}

/* As if so much more than the share had been used. */
static void run_into_debt(const struct step *step)
{
	__atomic_store_n(&step->ledger->share_free_at_ns[0], now_ns() + 50000000, __ATOMIC_RELAXED);
}

/* Any launch has to wait while that is so, on the host or in its stream, once what the process has taken from
 * the share is used up. */
#define CHECK_GATED(call)                                                                             \
	do {                                                                                          \
		uint64_t before_, is_, since_ = now_ns();                                             \
		is_ = before_ = __atomic_load_n(&step.ledger->waited_ns[0], __ATOMIC_RELAXED);        \
		while (is_ == before_ && now_ns() - since_ < 20000000000u) {                          \
			run_into_debt(&step);                                                         \
			CHECK_IS(call, CUDA_SUCCESS);                                                 \
			CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);                                   \
			is_ = __atomic_load_n(&step.ledger->waited_ns[0], __ATOMIC_RELAXED);          \
		}                                                                                     \
		if (is_ == before_)                                                                   \
			fprintf(stderr, "%s:%d: %s did not wait\n", __FILE__, __LINE__, #call), failures++; \
	} while (0)

static void every_launch_is_held_back(void)
{
	struct step step = step_with_share(4, 50);
	unsigned us = 10;
	void *params[] = {&us};
	CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, NULL, NULL, 0};
	CUDA_LAUNCH_PARAMS list[] = {{NULL, 1, 1, 1, 1, 1, 1, 0, NULL, params}};
	CUfunction function, plain = NULL;
	CUmodule module;
	CUgraph graph;
	CUgraphExec exec;
	CUstream stream;

	cuda_begin(0);
	function = list[0].function = busy_kernel();
	CHECK(cuModuleLoadData(&module, ".visible .entry plain()") == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&plain, module, "plain") == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
	CHECK(cuGraphCreate(&graph, 0) == CUDA_SUCCESS &&
	      cuGraphInstantiateWithFlags(&exec, graph, 0) == CUDA_SUCCESS);
	CHECK_GATED(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL));
	CHECK_GATED(cuLaunchKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL));
	CHECK_GATED(cuLaunchKernelEx(&config, function, params, NULL));
	CHECK_GATED(cuLaunchKernelEx_ptsz(&config, function, params, NULL));
	CHECK_GATED(cuLaunchCooperativeKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params));
	CHECK_GATED(cuLaunchCooperativeKernel_ptsz(function, 1, 1, 1, 1, 1, 1, 0, NULL, params));
	CHECK_GATED(cuLaunchCooperativeKernelMultiDevice(list, 1, 0));
	CHECK_GATED(cuLaunch(plain));
	CHECK_GATED(cuLaunchGrid(plain, 1, 1));
	CHECK_GATED(cuLaunchGridAsync(plain, 1, 1, stream));
	CHECK_GATED(cuGraphLaunch(exec, stream));
	CHECK_GATED(cuGraphLaunch_ptsz(exec, NULL));
	CHECK(cuGraphExecDestroy(exec) == CUDA_SUCCESS && cuGraphDestroy(graph) == CUDA_SUCCESS);
}

/* Streams come and go with work in flight; their markers must go with them. */
static void streams_come_and_go(void)
{
	step_with_share(5, 90);
	CUfunction function;

	cuda_begin(0);
	function = busy_kernel();
	for (int i = 0; i < 200; i++) {
		CUstream stream[3];

		for (int s = 0; s < 3; s++) {
			CHECK(cuStreamCreate(&stream[s], 0) == CUDA_SUCCESS);
			busy(function, 50, stream[s]);
		}
		CHECK(cuStreamDestroy_v2(stream[0]) == CUDA_SUCCESS);
		CHECK(cuStreamDestroy(stream[1]) == CUDA_SUCCESS);
		CHECK(cuStreamDestroy_v2(stream[2]) == CUDA_SUCCESS);
	}
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
}

/* Kernels behind copies and waits count as long as they are themselves. */
static void what_lies_between_kernels_does_not_count(void)
{
	enum { ROUNDS = 60, US = 2000 };
	struct step step = step_with_share(60, 90);
	CUfunction function;
	CUdeviceptr memory;
	CUevent event;
	CUstream stream;
	void *host = malloc(4 * MIB);
	uint64_t before;

	cuda_begin(0);
	function = busy_kernel();
	CHECK(host != NULL && cuMemAlloc_v2(&memory, 4 * MIB) == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS && cuEventCreate(&event, 2) == CUDA_SUCCESS);
	for (int i = 0; i < 5; i++)
		busy(function, US, stream);
	CHECK(cuCtxSynchronize() == CUDA_SUCCESS);
	for (uint64_t since = now_ns(); now_ns() - since < 5000000000u && step_busy_ns(&step) < 5 * US * 900;)
		sched_yield();
	before = step_busy_ns(&step);
	for (int i = 0; i < ROUNDS; i++) {
		CHECK_IS(cuMemcpyHtoDAsync_v2(memory, host, 4 * MIB, stream), CUDA_SUCCESS);
		CHECK_IS(cuMemcpyHtoDAsync_v2_ptsz(memory, host, 4 * MIB, stream), CUDA_SUCCESS);
		CHECK_IS(cuMemcpyDtoHAsync_v2(host, memory, 4 * MIB, stream), CUDA_SUCCESS);
		CHECK_IS(cuMemcpyDtoHAsync_v2_ptsz(host, memory, 4 * MIB, stream), CUDA_SUCCESS);
		CHECK_IS(cuEventRecord(event, NULL), CUDA_SUCCESS);
		CHECK_IS(cuStreamWaitEvent(stream, event, 0), CUDA_SUCCESS);
		CHECK_IS(cuStreamWaitEvent_ptsz(stream, event, 0), CUDA_SUCCESS);
		busy(function, US, stream);
	}
	CHECK_WITHIN(step_busy_ns_when_seen(&step, before, ROUNDS * US * 980ull, 5000000000u),
		     ROUNDS * US * 980ull, ROUNDS * US * 1050ull);
	free(host);
}

static void what_is_captured_stays_as_it_is(void)
{
	struct step step = step_with_share(6, 25);
	CUfunction function;
	CUgraph graph = NULL;
	CUstream stream;
	uint64_t waited;
	size_t nodes = 99;

	cuda_begin(0);
	function = busy_kernel();
	run_into_debt(&step);
	waited = step.ledger->waited_ns[0];
	CHECK(cuStreamCreate(&stream, 1) == CUDA_SUCCESS);
	CHECK(cuStreamBeginCapture_v2(stream, 0) == CUDA_SUCCESS);
	busy(function, 10, stream);
	CHECK(cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS);
	CHECK(cuGraphGetNodes(graph, NULL, &nodes) == CUDA_SUCCESS);
	CHECK(nodes <= 1);
	CHECK_IS(step.ledger->waited_ns[0], waited);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(kernels_get_their_share);
	CASE_OF_TIME(each_gpu_has_its_own_share);
	CASE_OF_TIME(garbage_in_the_pieces_goes_by);
	CASE_OF_TIME(the_ledger_knows_what_was_used);
	CASE_OF_TIME(a_launch_that_returns_late_opens_no_way);
	CASE_OF_TIME(no_cap_holds_nothing_back);
	CASE(every_launch_is_held_back);
	CASE(streams_come_and_go);
	CASE_OF_TIME(what_lies_between_kernels_does_not_count);
	CASE(what_is_captured_stays_as_it_is);
	return summary();
}

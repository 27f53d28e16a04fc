/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Contexts that are made at once by several processes: charged before they exist, so that together
 * they never pass the limit. */
#include "charged.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#define PROCESSES 8

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags);

static uint64_t highest(void)
{
	size_t bytes = 0;

	cuInit(0);
	CHECK_IS(cuSimHighest(0, &bytes), CUDA_SUCCESS);
	return bytes;
}

static struct racer {
	pid_t pid;
	int says, hears;
} racer[PROCESSES];

/* Waits for the word, makes a context, says whether it worked, and keeps it until the pipe ends. */
static void race(int says, int hears)
{
	CUcontext context;
	char word;

	if (read(hears, &word, 1) != 1 || freopen("/dev/null", "w", stderr) == NULL)
		_exit(1);
	word = 'n';
	if (cuInit(0) == CUDA_SUCCESS && cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS)
		word = 'y';
	if (write(says, &word, 1) != 1)
		_exit(1);
	while (read(hears, &word, 1) > 0)
		;
	_exit(0);
}

static void racers_wait(int count)
{
	for (int i = 0; i < count; i++) {
		int to[2], from[2];

		CHECK_IS(pipe(to) + pipe(from), 0);
		racer[i].pid = fork();
		if (racer[i].pid == 0) {
			for (int j = 0; j < i; j++)
				close(racer[j].hears);
			close(to[1]);
			close(from[0]);
			race(from[1], to[0]);
		}
		close(to[0]);
		close(from[1]);
		racer[i].says = from[0];
		racer[i].hears = to[1];
	}
}

static void racer_go(int i)
{
	CHECK_IS(write(racer[i].hears, "g", 1), 1);
}

static bool racer_got_it(int i)
{
	char word = '?';

	CHECK_IS(read(racer[i].says, &word, 1), 1);
	return word == 'y';
}

static void racers_end(int count)
{
	for (int i = 0; i < count; i++) {
		close(racer[i].hears);
		waitpid(racer[i].pid, NULL, 0);
		close(racer[i].says);
	}
}

static int race_all(void)
{
	int got = 0;

	racers_wait(PROCESSES);
	for (int i = 0; i < PROCESSES; i++)
		racer_go(i);
	for (int i = 0; i < PROCESSES; i++)
		got += racer_got_it(i);
	return got;
}

/* All eight are in the driver at once if nothing stops them. */
static void first_contexts_never_pass_the_limit_together(void)
{
	begin_without_cuda(350, 100);
	gpus_also("context_us=100000");
	CHECK_IS(race_all(), 3);
	CHECK_IS(used(), 300 * MIB);
	CHECK_IS(step.ledger->context_bytes[0], 100 * MIB + 1);
	racers_end(PROCESSES);
	CHECK(highest() <= 350 * MIB);
}

/* What the first ones have charged beyond what they cost is not taken for used by those that come. */
static void contexts_that_fit_all_start(void)
{
	begin_without_cuda(2300, 100);
	gpus_also("context_us=100000");
	CHECK_IS(race_all(), PROCESSES);
	CHECK_IS(used(), PROCESSES * 100 * MIB);
	CHECK_IS(step.ledger->peak_bytes[0], PROCESSES * 100 * MIB);
	racers_end(PROCESSES);
	CHECK_IS(highest(), PROCESSES * 100 * MIB);
}

static void the_cost_is_known_from_the_one_before(void)
{
	begin_without_cuda(250, 100);
	racers_wait(3);
	racer_go(0);
	CHECK(racer_got_it(0));
	CHECK_IS(step.ledger->peak_bytes[0], 100 * MIB);
	racer_go(1);
	CHECK(racer_got_it(1));
	highest();
	racer_go(2);
	CHECK(!racer_got_it(2));
	CHECK_IS(highest(), 200 * MIB);
	CHECK_IS(used(), 200 * MIB);
	CHECK_IS(step.ledger->refusals[0], 1);
	racers_end(3);
}

static void one_that_is_killed_meanwhile_stops_nobody(void)
{
	begin_without_cuda(350, 100);
	gpus_also("context_us=100000000");
	racers_wait(2);
	racer_go(0);
	for (int ms = 0; ms < 5000 && __atomic_load_n(&step.ledger->slot[0].measuring, __ATOMIC_ACQUIRE) == 0;
	     ms++)
		usleep(1000);
	CHECK_IS(step.ledger->slot[0].measuring, 1);
	gpus(100);
	racer_go(1);
	kill(racer[0].pid, SIGKILL);
	waitpid(racer[0].pid, NULL, 0);
	CHECK(racer_got_it(1));
	CHECK_IS(used(), 100 * MIB);
	racers_end(2);
}

/* Another process has charged more for its first context than that will cost, until it is waited for. */
static void *settle_other(void *argument)
{
	struct vgpu_ledger_slot *other = argument;
	uint64_t turns = __atomic_load_n(&step.ledger->lock_turns, __ATOMIC_RELAXED);

	for (int ms = 0;
	     ms < 5000 && __atomic_load_n(&step.ledger->lock_turns, __ATOMIC_RELAXED) < turns + 10; ms++)
		usleep(1000);
	__atomic_store_n(&other->used_bytes[0], 10 * MIB, __ATOMIC_RELAXED);
	__atomic_store_n(&other->measuring, 0, __ATOMIC_RELAXED);
	return NULL;
}

static void an_allocation_waits_for_what_others_will_give_back(void)
{
	struct vgpu_ledger_slot *other;
	pthread_t thread;
	CUdeviceptr a;

	begin(250, 0);
	other = &step.ledger->slot[5];
	other->pid = 1;
	other->step = step.ledger->slot[0].step;
	other->used_bytes[0] = step.ledger->used_bytes[0] = step.ledger->step[other->step].used_bytes[0] =
		200 * MIB;
	other->measuring = step.ledger->measuring = 1;
	step.ledger->slots_high = 6;
	__atomic_store_n(&other->state, 1, __ATOMIC_RELEASE);
	CHECK_IS(cuMemAlloc_v2(&a, 300 * MIB), CUDA_ERROR_OUT_OF_MEMORY); /* would never fit */
	CHECK_IS(step.ledger->refusals[0], 1);
	CHECK_IS(pthread_create(&thread, NULL, settle_other, other), 0);
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(pthread_join(thread, NULL), 0);
	CHECK_IS(step.ledger->refusals[0], 1);
	CHECK_IS(used(), 110 * MIB);
}

static void a_context_that_the_driver_refuses_costs_nothing(void)
{
	CUcontext context;

	begin_without_cuda(350, 100);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		CHECK_IS(cuSimFailNext(1), CUDA_SUCCESS);
		CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_IS(used(), 0);
		CHECK_IS(step.ledger->slot[0].measuring, 0);
		CHECK_IS(cuCtxCreate_v2(&context, 99, 77), CUDA_ERROR_INVALID_DEVICE);
	}
	CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
}

static void a_reset_primary_context_is_charged_again(void)
{
	CUcontext context;

	begin_without_cuda(150, 100);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		CHECK_IS(cuDevicePrimaryCtxSetFlags_v2(0, 4), CUDA_SUCCESS);
		CHECK_IS(used(), 0);
		/* The second time it is there already, and no other 100 MiB are needed. */
		CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
		CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
		CHECK_IS(used(), 100 * MIB);
		CHECK_IS(i == 0 ? cuDevicePrimaryCtxRelease_v2(0) : CUDA_SUCCESS, CUDA_SUCCESS);
		CHECK_IS(used(), 100 * MIB);
		CHECK_IS(i == 0 ? cuDevicePrimaryCtxRelease_v2(0) : cuDevicePrimaryCtxReset_v2(0),
			 CUDA_SUCCESS);
		CHECK_IS(used(), 0);
	}
	CHECK_IS(step.ledger->peak_bytes[0], 100 * MIB);
}

/* Whoever loads a library keeps other threads from loading one, such as the one that starts NVML: it is not
 * waited for. What the context takes is known once NVML can be asked. */
static void a_library_that_makes_a_context_while_it_is_loaded(void)
{
	char path[4096];
	uint64_t since;
	CUcontext *made;
	void *library;

	begin_without_cuda(3000, 100);
	snprintf(path, sizeof(path), "%s/../test-interposer/helpers/constructor.so", getenv("VGPU_TEST_SIM"));
	since = now_ns();
	library = dlopen(path, RTLD_NOW);
	CHECK(now_ns() - since < 5000000000u);
	CHECK(library != NULL);
	made = dlsym(library, "made_by_constructor");
	CHECK(made != NULL && *made != NULL && cuCtxSetCurrent(*made) == CUDA_SUCCESS);
	for (since = now_ns(); now_ns() - since < 5000000000u && used() != 100 * MIB && failures == 0;
	     usleep(10000))
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
}

static CUcontext loads_late;
static pthread_t allocates;

static void *allocate_beside(void *argument)
{
	CUdeviceptr a;

	(void)argument;
	CHECK_IS(cuCtxSetCurrent(loads_late), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 2500 * MIB), CUDA_SUCCESS);
	return NULL;
}

/* Keeps others from loading NVML for longer than a context or an allocation waits for it. */
static void keep_nvml_from_loading(void)
{
	CUdeviceptr none;

	cuda_begin(0);
	CHECK_IS(used(), 1024 * MIB);
	CHECK_IS(cuCtxGetCurrent(&loads_late), CUDA_SUCCESS);
	/* For looking up the driver's functions others would have to wait as well. */
	CHECK_IS(cuMemAlloc_v2(&none, 1), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(none), CUDA_SUCCESS);
	CHECK_IS(pthread_create(&allocates, NULL, allocate_beside, NULL), 0);
	usleep(1000000);
}

static void a_guess_of_what_a_context_costs_refuses_nothing(void)
{
	char path[4096], function[32];

	begin_without_cuda(3000, 100);
	snprintf(path, sizeof(path), "%s/../test-interposer/helpers/constructor.so", getenv("VGPU_TEST_SIM"));
	snprintf(function, sizeof(function), "%lx", (unsigned long)(uintptr_t)keep_nvml_from_loading);
	setenv("VGPU_TEST_AT_LOAD", function, 1);
	CHECK(dlopen(path, RTLD_NOW) != NULL);
	CHECK_IS(pthread_join(allocates, NULL), 0);
	CHECK_IS(step.ledger->refusals[0], 0);
	CHECK_IS(used(), 2600 * MIB);
}

/* Garbage is not believed, or harms the job that wrote it. */
static void a_cost_that_is_garbage_harms_only_its_job(void)
{
	CUcontext context;

	begin_without_cuda(350, 100);
	CHECK_IS(cuInit(0), CUDA_SUCCESS);
	step.ledger->context_bytes[0] = UINT64_MAX;
	CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(step.ledger->context_bytes[0], 100 * MIB + 1);
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	step.ledger->context_bytes[0] = 400 * MIB;
	CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 0);
	step.ledger->context_bytes[0] = 1;
	CHECK_IS(cuDevicePrimaryCtxRetain(&context, 0), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
}

int main(void)
{
	gpus(0);
	CASE(first_contexts_never_pass_the_limit_together);
	CASE(contexts_that_fit_all_start);
	CASE(the_cost_is_known_from_the_one_before);
	CASE(one_that_is_killed_meanwhile_stops_nobody);
	CASE(an_allocation_waits_for_what_others_will_give_back);
	CASE(a_context_that_the_driver_refuses_costs_nothing);
	CASE(a_reset_primary_context_is_charged_again);
	CASE(a_library_that_makes_a_context_while_it_is_loaded);
	CASE(a_guess_of_what_a_context_costs_refuses_nothing);
	CASE(a_cost_that_is_garbage_harms_only_its_job);
	return summary();
}

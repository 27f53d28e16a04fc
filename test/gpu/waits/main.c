/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Programs that end, whatever is held back in their streams:
 *
 *   waits PROGRAM     every call of the group behind held work, in front of it, and after a pause
 *   waits busy        keeps the GPU busy until it is killed
 *   waits --list      the programs but for that
 *   waits --probe     natively: which calls wait for a stream that is held back (probe.h) */
#include "probe.h"
#include "programs.h"

#include <execinfo.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 2
#define KERNELS 6
#define KERNEL_US 500u
/* Whoever watches over a program that does nothing has gone to sleep by then. */
#define PAUSE_MS 35u

static const struct calls *const groups[] = {&calls_of_memory, &calls_of_pools,	  &calls_of_copies,
					     &calls_of_graphs, &calls_of_modules, &calls_of_contexts,
					     &calls_of_streams};
#define GROUPS (sizeof(groups) / sizeof(groups[0]))

enum order { BEHIND, IN_FRONT, AFTER_A_PAUSE, ORDERS };

static void rest(void)
{
	nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000}, NULL);
}

static CUresult work(CUstream stream)
{
	for (int i = 0; i < KERNELS; i++)
		TRY(launch(spin, KERNEL_US, stream));
	return CUDA_SUCCESS;
}

static CUresult try_call(const struct call *call, CUstream stream, CUstream busy, enum order order)
{
	struct things t = {.stream = stream};

	TRY(call->prepare(&t));
	if (order == BEHIND)
		TRY(work(busy));
	if (order == AFTER_A_PAUSE)
		rest();
	TRY(call->call(&t));
	if (order != BEHIND)
		TRY(work(busy));
	TRY(cu.cuCtxSynchronize());
	return call->undo(&t);
}

static CUresult run_group(const struct calls *calls)
{
	CUstream stream, busy;

	TRY(cu.cuStreamCreate(&stream, STREAM_NON_BLOCKING));
	TRY(cu.cuStreamCreate(&busy, STREAM_NON_BLOCKING));
	for (unsigned i = 0; i < calls->count; i++) {
		const struct call *call = &calls->call[i];

		if (*(void *const *)call->needs == NULL)
			continue;
		printf("at %s\n", call->name);
		fflush(stdout);
		for (unsigned n = 0; n < ROUNDS * ORDERS; n++)
			TRY(try_call(call, stream, n % 2 == 0 ? stream : busy, (enum order)(n % ORDERS)));
	}
	return CUDA_SUCCESS;
}

/* The neighbour: says when it begins. */
static CUresult be_busy(void)
{
	CUevent done[2];

	TRY(cu.cuEventCreate(&done[0], CU_EVENT_DISABLE_TIMING));
	TRY(cu.cuEventCreate(&done[1], CU_EVENT_DISABLE_TIMING));
	for (unsigned i = 0;; i++) {
		TRY(work(NULL));
		TRY(cu.cuEventRecord(done[i % 2], NULL));
		if (i == 4) {
			printf("busy\n");
			fflush(stdout);
		}
		if (i > 0)
			TRY(cu.cuEventSynchronize(done[(i + 1) % 2]));
	}
}

static int run(const char *name)
{
	CUresult result = cuda_begin();

	for (unsigned g = 0; g < GROUPS && result == CUDA_SUCCESS; g++) {
		if (strcmp(groups[g]->name, name) == 0)
			result = run_group(groups[g]);
	}
	for (unsigned i = 0; i < programs_count && result == CUDA_SUCCESS; i++) {
		if (strcmp(programs[i].name, name) == 0)
			result = programs[i].run();
	}
	if (result == CUDA_SUCCESS && strcmp(name, "busy") == 0)
		result = be_busy();
	printf("%s %d\n", name, (int)result);
	return result == CUDA_SUCCESS ? 0 : 1;
}

/* Where it was. */
static void crashed(int signal)
{
	void *frame[32];

	backtrace_symbols_fd(frame, backtrace(frame, 32), 1);
	_exit(128 + signal);
}

int main(int argc, char **argv)
{
	signal(SIGFPE, crashed);
	signal(SIGSEGV, crashed);
	if (argc != 2) {
		fprintf(stderr, "usage: waits PROGRAM | --list | --probe\n");
		return 2;
	}
	if (strcmp(argv[1], "--list") == 0) {
		for (unsigned g = 0; g < GROUPS; g++)
			printf("%s\n", groups[g]->name);
		for (unsigned i = 0; i < programs_count; i++)
			printf("%s\n", programs[i].name);
		return 0;
	}
	if (!cuda_load())
		return 2;
	if (strcmp(argv[1], "--probe") == 0)
		return cuda_begin() == CUDA_SUCCESS ? probe_all(groups, GROUPS) : 1;
	return run(argv[1]);
}

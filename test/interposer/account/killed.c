/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Processes are killed at random moments, in the middle of whatever they do. After every round, within
 * a second, the account is what the survivors hold, by the driver's own figure. */
#include "harness.h"
#include "things.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define LIMIT_MIB 512u
#define PLENTY_MIB 4000u
#define PROCESSES 8
#define THREADS 3
#define SLOTS 5
#define SHARED_FD 50 /* survives an exec */

#ifdef __SANITIZE_ADDRESS__
#define ROUNDS 15
#else
#define ROUNDS 50
#endif

static struct {
	uint32_t pause;
	uint32_t everything; /* not memory alone */
	uint64_t limit_bytes;
	uint32_t parked[PROCESSES];
	uint64_t own_bytes[PROCESSES]; /* the driver's figure for each when it had parked */
	uint64_t calls, granted, over, odd;
} *shared;
static struct step step;

static const enum thing_kind memory[] = {THING_LINEAR, THING_PITCHED, THING_MANAGED, THING_ASYNC,
					 THING_POOLED, THING_VMM,     THING_ARRAY};
/* Without managed memory, beside which nobody knows exactly what contexts and modules take. */
static const enum thing_kind everything[] = {THING_LINEAR, THING_ASYNC, THING_POOLED, THING_VMM, THING_ARRAY,
					     THING_GRAPH, THING_POOL, THING_CONTEXT, THING_MODULE};
#define ONE_OF(list, random) (list)[(random) % (sizeof(list) / sizeof((list)[0]))]

#define READ(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define COUNT(field) __atomic_add_fetch(&(field), 1, __ATOMIC_SEQ_CST)

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void never_above(void)
{
	size_t all;

	if (READ(step.ledger->used_bytes[0]) > shared->limit_bytes ||
	    cuSimHeld(0, NULL, &all) != CUDA_SUCCESS || all > shared->limit_bytes)
		COUNT(shared->over);
}

/* ---- the victims ---- */

struct victim {
	uint32_t number, seed;
	CUcontext context;
};

static uint32_t parked; /* threads of this process */

static void park(const struct victim *v)
{
	size_t stack;

	if (!READ(shared->pause))
		return;
	/* The last one has the driver asked about what nobody has asked it yet: small modules, trimmed
	 * pools. */
	if (COUNT(parked) == THREADS) {
		if (shared->everything && cuCtxSynchronize() == CUDA_SUCCESS &&
		    cuCtxGetLimit(&stack, CU_LIMIT_STACK_SIZE) == CUDA_SUCCESS)
			cuCtxSetLimit(CU_LIMIT_STACK_SIZE, stack);
		cuSimHeld(0, &shared->own_bytes[v->number], NULL);
	}
	COUNT(shared->parked[v->number]);
	while (READ(shared->pause))
		usleep(200);
	__atomic_sub_fetch(&shared->parked[v->number], 1, __ATOMIC_SEQ_CST);
	__atomic_sub_fetch(&parked, 1, __ATOMIC_SEQ_CST);
}

static enum thing_kind any_kind(uint32_t *seed)
{
	return shared->everything ? ONE_OF(everything, thing_random(seed))
				  : ONE_OF(memory, thing_random(seed));
}

static void *take_and_drop(void *argument)
{
	struct victim v = *(struct victim *)argument;
	struct thing thing[SLOTS] = {0};
	struct hands hands;

	hands_begin(&hands, v.context);
	for (;;) {
		struct thing *t = &thing[thing_random(&v.seed) % SLOTS];
		CUresult result;

		if (t->kind != THING_NONE)
			result = thing_drop(&hands, t);
		else
			result = thing_take(&hands, t, any_kind(&v.seed), 1 + thing_random(&v.seed) % 8);
		if (result == CUDA_SUCCESS)
			COUNT(shared->granted);
		else if (result != CUDA_ERROR_OUT_OF_MEMORY)
			COUNT(shared->odd);
		if (thing_random(&v.seed) % 16 == 0)
			cuStreamSynchronize(hands.stream);
		never_above();
		COUNT(shared->calls);
		park(&v);
	}
	return NULL;
}

static int be_victim(uint32_t number, uint32_t seed)
{
	static struct victim victim[THREADS];
	pthread_t thread;

	library_quiet();
	step = step_of_environment();
	if (cuInit(0) != CUDA_SUCCESS)
		return 1;
	for (uint32_t i = 0; i < THREADS; i++) {
		victim[i] = (struct victim){number, seed * THREADS + i, NULL};
		/* A context may not fit just now. */
		while (cuDevicePrimaryCtxRetain(&victim[i].context, 0) != CUDA_SUCCESS)
			park(&victim[i]);
		if (pthread_create(&thread, NULL, take_and_drop, &victim[i]) != 0)
			return 1;
	}
	for (;;)
		pause();
}

/* ---- the rounds ---- */

static pid_t victim_pid[PROCESSES];

static void start(uint32_t number, uint32_t seed)
{
	char text[2][16];

	snprintf(text[0], sizeof(text[0]), "%u", number);
	snprintf(text[1], sizeof(text[1]), "%u", seed);
	shared->parked[number] = 0;
	/* CUDA cannot be used in a fork of a process that uses it. */
	if ((victim_pid[number] = fork()) == 0) {
		execl("/proc/self/exe", "self", "victim", text[0], text[1], NULL);
		_exit(1);
	}
}

static void end(uint32_t number)
{
	int status = 0;

	kill(victim_pid[number], SIGKILL);
	waitpid(victim_pid[number], &status, 0);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	victim_pid[number] = 0;
}

static bool all_parked(void)
{
	for (int i = 0; i < PROCESSES; i++)
		if (victim_pid[i] != 0 && READ(shared->parked[i]) != THREADS)
			return false;
	return true;
}

static void say_who_holds_what(uint32_t round)
{
	fprintf(stderr, "in round %u\n", round);
	for (int i = 0; i < PROCESSES; i++)
		if (victim_pid[i] != 0)
			fprintf(stderr, "process %d holds %llu\n", (int)victim_pid[i],
				(unsigned long long)shared->own_bytes[i]);
	for (int i = 0; i < VGPU_MAX_PROCS; i++)
		if (step.ledger->slot[i].state == 1)
			fprintf(stderr, "slot %d: process %d is charged %llu\n", i, step.ledger->slot[i].pid,
				(unsigned long long)step.ledger->slot[i].used_bytes[0]);
}

/* Whatever state it is in: within a second of standing still. */
static void check_account(uint32_t round)
{
	uint64_t until, used, looks = 0, last, longest = 0;
	size_t all, free_bytes, total_bytes;

	for (until = now_ms() + 20000; !all_parked() && now_ms() < until;)
		usleep(200);
	CHECK(all_parked());
	last = now_ms();
	until = last + 1000;
	do {
		CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
		CHECK_IS(cuSimHeld(0, NULL, &all), CUDA_SUCCESS);
		used = READ(step.ledger->used_bytes[0]);
		looks++;
		longest = now_ms() - last > longest ? now_ms() - last : longest;
		last = now_ms();
	} while ((used != all || step_slots_bytes(&step) != all) && now_ms() < until);
	CHECK_IS(used, all);
	CHECK_IS(step_slots_bytes(&step), all);
	CHECK(used <= shared->limit_bytes);
	if (failures == 0)
		return;
	fprintf(stderr, "%llu looks, the longest took %llu ms; lock %#x, %u slots\n",
		(unsigned long long)looks, (unsigned long long)longest, READ(step.ledger->lock),
		READ(step.ledger->slots_high));
	say_who_holds_what(round);
}

static unsigned rounds(void)
{
	const char *text = getenv("VGPU_KILL_ROUNDS");

	return text != NULL ? (unsigned)atoi(text) : ROUNDS;
}

static void kill_rounds(bool all_kinds)
{
	uint32_t seed = 1;
	uint64_t last;
	size_t own;

	shared->everything = all_kinds;
	shared->limit_bytes = step.limits->device[0].step_mem_bytes;
	shared->calls = shared->granted = shared->over = shared->odd = 0;
	cuda_begin(0);
	for (uint32_t round = 0; round < rounds() && failures == 0; round++) {
		uint64_t before = READ(shared->calls), some = thing_random(&seed) % 300;
		uint64_t until = now_ms() + 20000;

		for (uint32_t i = 0; i < PROCESSES; i++)
			if (victim_pid[i] == 0)
				start(i, round * PROCESSES + i);
		while (READ(shared->calls) < before + some && now_ms() < until)
			sched_yield();
		CHECK(now_ms() < until);
		for (uint32_t i = 1 + thing_random(&seed) % 4; i > 0; i--) {
			uint32_t number = thing_random(&seed) % PROCESSES;

			if (victim_pid[number] != 0)
				end(number);
		}
		__atomic_store_n(&shared->pause, 1, __ATOMIC_SEQ_CST);
		check_account(round);
		__atomic_store_n(&shared->pause, 0, __ATOMIC_SEQ_CST);
	}
	for (uint32_t i = 0; i < PROCESSES; i++)
		if (victim_pid[i] != 0)
			end(i);
	last = READ(shared->granted);
	CHECK_IS(cuSimHeld(0, &own, NULL), CUDA_SUCCESS);
	check_account(rounds());
	CHECK_IS(step_slots_bytes(&step), own);
	CHECK_IS(shared->over, 0);
	CHECK_IS(shared->odd, 0);
	CHECK(last > rounds() * 20ull);
}

static void the_killed_leave_no_memory_behind(void)
{
	CUdeviceptr a;

	gpus(0);
	step = step_make(2, 0, LIMIT_MIB, LIMIT_MIB);
	kill_rounds(false);
	CHECK(step.ledger->refusals[0] > 0); /* else the limit was never near */
	/* All can be had at once, and not a byte more. */
	CHECK_IS(cuMemAlloc_v2(&a, LIMIT_MIB * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuMemAlloc_v2(&a, LIMIT_MIB * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

/* With room for all of it: what a context or a module takes is known once it is made, and one that then
 * does not fit is on the GPU for a moment, beside the account. */
static void the_killed_leave_nothing_behind_whatever_they_did(void)
{
	gpus(4);
	step = step_make(3, 0, PLENTY_MIB, PLENTY_MIB);
	kill_rounds(true);
}

int main(int argc, char **argv)
{
	if (argc == 1 && (dup2(memfd_create("shared", 0), SHARED_FD) != SHARED_FD ||
			  ftruncate(SHARED_FD, sizeof(*shared)) != 0))
		return 1;
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, SHARED_FD, 0);
	if (argc > 3 && strcmp(argv[1], "victim") == 0)
		return be_victim((uint32_t)atoi(argv[2]), (uint32_t)atoi(argv[3]));
	gpus(0);
	CASE(the_killed_leave_no_memory_behind);
	CASE(the_killed_leave_nothing_behind_whatever_they_did);
	return summary();
}

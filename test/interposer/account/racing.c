/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Eight processes of four threads race for all kinds of memory: by the driver's own figure never more
 * than the limit, all of the limit when there is somebody to take it, and nothing once all is freed. */
#include "harness.h"
#include "things.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define LIMIT_MIB 512u
#define PROCESSES 8
#define THREADS 4
#define SLOTS 8
#define CALLS 250
#define GRANULES (LIMIT_MIB / 2)

static struct step step;
static struct {
	uint64_t over, taken, refused, errors;
	uint64_t arrived[3]; /* threads that have come to the end of a stage */
	uint64_t held_granules;
} *shared;
static CUcontext context;

#define READ(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define COUNT(field) __atomic_add_fetch(&(field), 1, __ATOMIC_SEQ_CST)

static void never_above(void)
{
	size_t all;

	if (cuSimHeld(0, NULL, &all) != CUDA_SUCCESS || all > LIMIT_MIB * MIB ||
	    READ(step.ledger->used_bytes[0]) > LIMIT_MIB * MIB)
		COUNT(shared->over);
}

/* Waits for the others, a minute at most. */
static void all_arrive(int stage)
{
	time_t until = time(NULL) + 60;

	COUNT(shared->arrived[stage]);
	while (READ(shared->arrived[stage]) < PROCESSES * THREADS) {
		if (time(NULL) > until) {
			COUNT(shared->errors);
			return;
		}
		usleep(500);
	}
}

static void count_result(CUresult result)
{
	COUNT(*(result == CUDA_SUCCESS		     ? &shared->taken
		: result == CUDA_ERROR_OUT_OF_MEMORY ? &shared->refused
						     : &shared->errors));
}

/* Mostly a few granules; sometimes more than a chunk of a pool, which is 16 of them. */
static uint32_t some_granules(uint32_t *seed)
{
	return 1 + thing_random(seed) % (thing_random(seed) % 8 != 0 ? 12 : 35);
}

/* What a stream allocates can be freed in two ways. */
static CUresult drop(struct hands *hands, struct thing *thing, uint32_t *seed)
{
	CUdeviceptr pointer = thing->pointer;
	bool asynchronous = thing->kind == THING_ASYNC || thing->kind == THING_POOLED;

	if (!asynchronous || thing_random(seed) % 4 != 0)
		return thing_drop(hands, thing);
	thing->kind = THING_NONE;
	return cuMemFree_v2(pointer);
}

static void race(struct hands *hands, uint32_t seed)
{
	struct thing thing[SLOTS] = {0};

	for (int call = 0; call < CALLS; call++) {
		struct thing *t = &thing[thing_random(&seed) % SLOTS];
		enum thing_kind kind = 1 + thing_random(&seed) % (THING_MEMORY_KINDS - 1);

		if (t->kind == THING_NONE)
			count_result(thing_take(hands, t, kind, some_granules(&seed)));
		else if (drop(hands, t, &seed) != CUDA_SUCCESS)
			COUNT(shared->errors);
		if (thing_random(&seed) % 16 == 0)
			cuStreamSynchronize(hands->stream);
		never_above();
	}
	for (int i = 0; i < SLOTS; i++)
		if (thing_drop(hands, &thing[i]) != CUDA_SUCCESS)
			COUNT(shared->errors);
}

/* Granule by granule until nobody gets another one, each by whatever kind comes. */
static void fill(struct hands *hands, uint32_t seed)
{
	static const enum thing_kind kinds[] = {THING_LINEAR, THING_PITCHED, THING_VMM, THING_ARRAY};
	struct thing thing[GRANULES] = {0};
	uint32_t held = 0;

	while (held < GRANULES &&
	       thing_take(hands, &thing[held], kinds[thing_random(&seed) % 4], 1) == CUDA_SUCCESS) {
		held++;
		never_above();
	}
	__atomic_add_fetch(&shared->held_granules, held, __ATOMIC_SEQ_CST);
	all_arrive(1);
	never_above();
	all_arrive(2);
	while (held > 0)
		if (thing_drop(hands, &thing[--held]) != CUDA_SUCCESS)
			COUNT(shared->errors);
}

static void *race_thread(void *argument)
{
	uint32_t seed = (uint32_t)(uintptr_t)argument;
	uint64_t everything = UINT64_MAX;
	struct hands hands;

	hands_begin(&hands, context);
	if (seed % 2 != 0)
		cuMemPoolSetAttribute(hands.pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &everything);
	race(&hands, seed);
	hands_end(&hands);
	cuCtxSynchronize(); /* pools give back then */
	all_arrive(0);
	fill(&hands, seed);
	return NULL;
}

static void race_process(int number)
{
	pthread_t thread[THREADS];

	library_quiet();
	cuda_begin(0);
	cuCtxGetCurrent(&context);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, race_thread, (void *)(uintptr_t)(number * 100 + i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	_exit(failures == 0 ? 0 : 1);
}

static void racing_processes_never_pass_the_limit_and_use_all_of_it(void)
{
	pid_t pid[PROCESSES];
	size_t highest;

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
	CHECK(shared->taken > 1000);
	CHECK(shared->refused > 0); /* else the limit was never near */
	CHECK_IS(shared->held_granules, GRANULES);
	cuda_begin(0);
	CHECK_IS(cuSimHighest(0, &highest), CUDA_SUCCESS);
	CHECK_IS(highest, LIMIT_MIB * MIB);
	CHECK_IS(step.ledger->peak_bytes[0], LIMIT_MIB * MIB);
	CHECK_IS(step.ledger->used_bytes[0], 0);
	CHECK_IS(step_slots_bytes(&step), 0);
	CHECK_IS(driver_used_bytes(0), 0);
	CHECK_IS(step.ledger->lock, 0);
}

int main(void)
{
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	gpus(0);
	CASE(racing_processes_never_pass_the_limit_and_use_all_of_it);
	return summary();
}

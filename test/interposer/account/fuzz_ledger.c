/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The ledger is the job's to write. Whatever is written there, and while its processes are in the
 * middle of charging: they go on or are refused, none waits for ever, none alone passes the limit, and
 * what the limit is stands elsewhere. */
#include "fuzz.h"
#include "harness.h"

#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#define LIMIT_MIB 100u
#define WORKERS 2
#define THREADS 2
#define CALLS 60
#define SLOTS 6

static struct step step;
static struct {
	uint32_t stop;
	uint64_t calls, granted, over, odd;
} *shared;

static uint64_t now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

static void count(uint64_t *what)
{
	__atomic_add_fetch(what, 1, __ATOMIC_RELAXED);
}

/* ---- who charges ---- */

struct worker {
	struct fuzz f;
	CUcontext context;
};

static void check_own(void)
{
	size_t own, free_bytes, total_bytes;

	if (cuSimHeld(0, &own, NULL) != CUDA_SUCCESS || own > LIMIT_MIB * MIB)
		count(&shared->over);
	if (cuMemGetInfo_v2(&free_bytes, &total_bytes) != CUDA_SUCCESS || total_bytes != LIMIT_MIB * MIB ||
	    free_bytes > total_bytes)
		count(&shared->odd);
}

static void *charge(void *argument)
{
	struct worker *w = argument;
	CUdeviceptr pointer[SLOTS] = {0};

	cuCtxSetCurrent(w->context);
	for (int i = 0; i < CALLS; i++) {
		uint32_t at = fuzz_below(&w->f, SLOTS);
		CUresult result;

		if (pointer[at] != 0) {
			result = cuMemFree_v2(pointer[at]);
			pointer[at] = 0;
		} else {
			result = cuMemAlloc_v2(&pointer[at], 2 * MIB + fuzz_below(&w->f, 40 * MIB));
			if (result == CUDA_SUCCESS)
				count(&shared->granted);
			else
				pointer[at] = 0;
		}
		if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
			count(&shared->odd);
		check_own();
		count(&shared->calls);
	}
	for (int i = 0; i < SLOTS; i++)
		if (pointer[i] != 0 && cuMemFree_v2(pointer[i]) != CUDA_SUCCESS)
			count(&shared->odd);
	return NULL;
}

static void work(struct fuzz *f)
{
	struct worker worker[THREADS];
	pthread_t thread[THREADS];
	size_t own = 1;
	CUcontext context;

	library_quiet();
	/* A ledger that is no ledger when the process comes is refused. */
	if (cuInit(0) != CUDA_SUCCESS || cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS)
		_exit(0);
	for (int i = 0; i < THREADS; i++) {
		worker[i] = (struct worker){{fuzz_next(f)}, context};
		pthread_create(&thread[i], NULL, charge, &worker[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	if (cuSimHeld(0, &own, NULL) != CUDA_SUCCESS || own != 0)
		count(&shared->odd);
	_exit(0);
}

/* ---- who writes garbage ---- */

static void write_words(struct fuzz *f)
{
	uint32_t *word = (uint32_t *)step.ledger;

	for (int i = 0; i < 2000; i++)
		__atomic_store_n(&word[fuzz_below(f, sizeof(*step.ledger) / 4)], (uint32_t)fuzz_number(f),
				 __ATOMIC_RELAXED);
}

static void write_head(struct fuzz *f)
{
	uint32_t *word = (uint32_t *)step.ledger;

	for (int i = 0; i < 20; i++)
		__atomic_store_n(&word[fuzz_below(f, offsetof(struct vgpu_ledger, step) / 4)],
				 (uint32_t)fuzz_number(f), __ATOMIC_RELAXED);
	__atomic_store_n(&step.ledger->context_bytes[0], fuzz_number(f), __ATOMIC_RELAXED);
}

static void write_slots(struct fuzz *f)
{
	for (int i = 0; i < 50; i++) {
		struct vgpu_ledger_slot *slot =
			&step.ledger
				 ->slot[fuzz_below(f, 2) ? fuzz_below(f, 4) : fuzz_below(f, VGPU_MAX_PROCS)];

		__atomic_store_n(&slot->state, fuzz_below(f, 3), __ATOMIC_RELAXED);
		__atomic_store_n(&slot->step, fuzz_below(f, 300), __ATOMIC_RELAXED);
		__atomic_store_n(&slot->used_bytes[0], fuzz_number(f), __ATOMIC_RELAXED);
		__atomic_store_n(&slot->measuring, fuzz_below(f, 4), __ATOMIC_RELAXED);
		if (fuzz_below(f, 2))
			__atomic_store_n(&slot->pid, (int32_t)fuzz_number(f), __ATOMIC_RELAXED);
		if (fuzz_below(f, 2))
			__atomic_store_n(&slot->pidns, step.ledger->lock_pidns, __ATOMIC_RELAXED);
	}
}

static void write_all(struct fuzz *f)
{
	uint64_t *word = (uint64_t *)step.ledger;
	uint64_t value = fuzz_below(f, 2) ? 0 : fuzz_number(f);

	for (size_t i = 0; i < sizeof(*step.ledger) / 8; i++)
		__atomic_store_n(&word[i], value, __ATOMIC_RELAXED);
}

static void write_lock(struct fuzz *f)
{
	uint32_t mine = fuzz_below(f, 2) ? (uint32_t)getpid() : (uint32_t)fuzz_number(f);

	for (int i = 0; i < 50; i++) {
		__atomic_store_n(&step.ledger->lock, fuzz_below(f, 2) ? 0 : mine, __ATOMIC_RELAXED);
		__atomic_add_fetch(&step.ledger->lock_turns, fuzz_below(f, 2), __ATOMIC_RELAXED);
	}
}

static bool all_ended(pid_t pid[WORKERS])
{
	bool all = true;

	for (int i = 0; i < WORKERS; i++) {
		int status = 0;

		if (pid[i] != 0 && waitpid(pid[i], &status, WNOHANG) == pid[i]) {
			CHECK_IS(status, 0);
			pid[i] = 0;
		}
		all = all && pid[i] == 0;
	}
	return all;
}

static void any_ledger(struct fuzz *f)
{
	static void (*const writers[])(struct fuzz *) = {write_words, write_head, write_slots, write_all,
							 write_lock};
	void (*one)(struct fuzz *) = writers[fuzz_below(f, 5)],
				(*other)(struct fuzz *) = writers[fuzz_below(f, 5)];
	pid_t pid[WORKERS];
	uint64_t began;

	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	step = step_make(1 + (uint32_t)getpid(), 0, LIMIT_MIB, LIMIT_MIB);
	for (int i = 0; i < WORKERS; i++) {
		struct fuzz own = {fuzz_next(f)};

		if ((pid[i] = fork()) == 0)
			work(&own);
	}
	/* Most rounds begin once all are at work, so that they have something to lose. */
	began = now_ms();
	while (fuzz_below(f, 1000) != 0 && __atomic_load_n(&shared->calls, __ATOMIC_RELAXED) < 10 &&
	       now_ms() - began < 2000)
		;
	for (began = now_ms(); !all_ended(pid) && now_ms() - began < 200;)
		(fuzz_below(f, 2) ? one : other)(f);
	while (!all_ended(pid))
		usleep(200); /* a round as a whole has its time */
	CHECK_IS(shared->over, 0);
	CHECK_IS(shared->odd, 0);
	munmap(step.ledger, sizeof(*step.ledger));
}

static void any_ledger_harms_only_its_own_job(void)
{
	/* They wait for locks that are written to be held. */
	fuzz_rounds_beside(40, 8, any_ledger);
}

/* ---- one thing at a time ---- */

static uint32_t passing;

static void *pass_on(void *unused)
{
	(void)unused;
	while (__atomic_load_n(&passing, __ATOMIC_RELAXED)) {
		__atomic_store_n(&step.ledger->lock, (uint32_t)getppid(), __ATOMIC_RELAXED);
		__atomic_add_fetch(&step.ledger->lock_turns, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void a_lock_that_is_passed_on_for_ever_is_taken(void)
{
	pthread_t thread;
	CUdeviceptr a;

	alarm(60);
	step = step_make(2, 0, LIMIT_MIB, LIMIT_MIB);
	cuda_begin(0);
	passing = 1;
	CHECK_IS(pthread_create(&thread, NULL, pass_on, NULL), 0);
	while (__atomic_load_n(&step.ledger->lock_turns, __ATOMIC_RELAXED) < 1000)
		sched_yield();
	for (int i = 0; i < 3; i++) {
		if (cuMemAlloc_v2(&a, 10 * MIB) == CUDA_SUCCESS)
			CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	}
	__atomic_store_n(&passing, 0, __ATOMIC_RELAXED);
	pthread_join(thread, NULL);
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(step.ledger->used_bytes[0], 100 * MIB);
}

static void sums_of_zero_do_not_lift_the_limit(void)
{
	CUdeviceptr a, b;

	step = step_make(3, 0, LIMIT_MIB, LIMIT_MIB);
	step.ledger->slot[9] =
		(struct vgpu_ledger_slot){.state = 1, .pid = 1, .pidns = 42, .used_bytes = {30 * MIB}};
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 40 * MIB), CUDA_SUCCESS);
	for (int i = 0; i < 3; i++) {
		step.ledger->used_bytes[0] = 0;
		step.ledger->step[0].used_bytes[0] = 0;
		CHECK_IS(cuMemAlloc_v2(&b, 32 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
		CHECK_IS(step.ledger->used_bytes[0], 70 * MIB);
	}
	step.ledger->used_bytes[0] = 0;
	CHECK_IS(cuMemAlloc_v2(&b, 30 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 100 * MIB);
}

/* With no slot to be had the process keeps its own account, and writes it down when there is one again. */
static void a_full_ledger_loses_no_free(void)
{
	CUdeviceptr a, b;

	step = step_make(4, 0, LIMIT_MIB, LIMIT_MIB);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 40 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 60 * MIB), CUDA_SUCCESS);
	for (int i = 0; i < VGPU_MAX_PROCS; i++)
		step.ledger->slot[i] = (struct vgpu_ledger_slot){.state = 1, .pid = 1, .pidns = 42};
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	memset(step.ledger->slot, 0, sizeof(step.ledger->slot));
	CHECK_IS(cuMemAlloc_v2(&b, 60 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 100 * MIB);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemFree_v2(b), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 0);
}

/* A mapped file that is cut is a SIGBUS, for the job whose ledger it is and that cut it. */
static void a_ledger_that_is_cut_ends_its_own_job_alone(void)
{
	char path[600];
	struct step own = step_make(5, 0, LIMIT_MIB, LIMIT_MIB);
	CUdeviceptr a;
	int status = 0;
	pid_t pid;

	step = step_make(6, 0, LIMIT_MIB, LIMIT_MIB);
	pid = fork();
	if (pid == 0) {
		library_quiet();
		step_enter(&own);
		cuda_begin(0);
		snprintf(path, sizeof(path), "%s/ledger", own.folder);
		if (truncate(path, 0) == 0)
			cuMemAlloc_v2(&a, 10 * MIB);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	CHECK(status != 0); /* a signal, or what a sanitizer makes of it */
	step_enter(&step);
	cuda_begin(0);
	CHECK_IS(cuMemAlloc_v2(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 100 * MIB);
}

int main(void)
{
	gpus(0);
	CASE(any_ledger_harms_only_its_own_job);
	CASE(a_lock_that_is_passed_on_for_ever_is_taken);
	CASE(sums_of_zero_do_not_lift_the_limit);
	CASE(a_full_ledger_loses_no_free);
	CASE(a_ledger_that_is_cut_ends_its_own_job_alone);
	return summary();
}

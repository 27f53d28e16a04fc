/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Two processes of a job charge what only one of them can have, and a third one robs the first of the
 * ledger's lock: at every single instruction at which it can be stopped while it has it. Whatever each of
 * them had read by then, the driver never gives out more than the limit. */
#include "harness.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_MIB 64u
#define EACH_MIB 40u /* only one of both fits */
#define MOST_STEPS 20000

enum { IDLE, TAKE, GIVE, END };

static struct step step;
static struct worker {
	uint32_t order, done; /* done follows order */
	CUresult result;
	CUdeviceptr pointer;
} *workers;

/* In front of the C library's: the kernel's page (vdso) reads the clock again and again until no tick came
 * in between, and stepped through one always does. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
	return (int)syscall(SYS_clock_gettime, clock, now);
}

#define READ(field) __atomic_load_n(&(field), __ATOMIC_SEQ_CST)
#define WRITE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_SEQ_CST)

static void pause_a_little(void)
{
	nanosleep(&(struct timespec){0, 20000}, NULL);
}

static void work(struct worker *own)
{
	library_quiet();
	cuda_begin(0);
	for (;;) {
		uint32_t order = READ(own->order);

		if (order == READ(own->done)) {
			pause_a_little();
			continue;
		}
		if (order % 4 == TAKE)
			own->result = cuMemAlloc_v2(&own->pointer, EACH_MIB * MIB);
		else if (order % 4 == GIVE && own->result == CUDA_SUCCESS)
			own->result = cuMemFree_v2(own->pointer);
		WRITE(own->done, order);
		if (order % 4 == END)
			_exit(failures == 0 ? 0 : 1);
	}
}

/* Orders count on, so that the same one can follow. */
static void order(struct worker *worker, uint32_t what)
{
	uint32_t last = READ(worker->order);

	WRITE(worker->order, (last / 4 + 1) * 4 + what);
}

static bool await(const struct worker *worker)
{
	for (uint64_t since = now_ns(); now_ns() - since < 20000000000ull; pause_a_little())
		if (READ(worker->done) == READ(worker->order))
			return true;
	CHECK(!"a worker answers");
	return false;
}

static uint32_t holder(void)
{
	return READ(step.ledger->lock) & ~FUTEX_WAITERS;
}

static bool stopped(pid_t pid)
{
	int status = 0;

	return waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status);
}

/* The first one waits for a lock that this process has. */
static bool let_it_wait(struct worker *first, pid_t pid)
{
	WRITE(step.ledger->lock, (uint32_t)getpid());
	step.ledger->lock_turns++;
	order(first, TAKE);
	for (uint64_t since = now_ns(); (READ(step.ledger->lock) & FUTEX_WAITERS) == 0; pause_a_little())
		if (now_ns() - since > 900000000)
			return false; /* it will take it as if it were stuck */
	return ptrace(PTRACE_INTERRUPT, pid, NULL, NULL) == 0 && stopped(pid);
}

/* Lets it go on to where it has the lock, and so many instructions further. False when it has given it back
 * by then. */
static bool step_into_the_lock(pid_t pid, unsigned instructions)
{
	WRITE(step.ledger->lock, 0);
	for (int i = 0; i < MOST_STEPS && holder() != (uint32_t)pid; i++)
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || !stopped(pid))
			return false;
	for (unsigned i = 0; i < instructions && holder() == (uint32_t)pid; i++)
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || !stopped(pid))
			return false;
	return holder() == (uint32_t)pid;
}

static bool round_of(pid_t pid, unsigned instructions)
{
	struct worker *first = &workers[0], *second = &workers[1];
	size_t highest = 0;
	bool inside;

	if (!let_it_wait(first, pid))
		return false;
	inside = step_into_the_lock(pid, instructions);
	if (inside)
		WRITE(step.ledger->lock, 0);
	order(second, TAKE);
	/* It may have to wait for the first one, which goes on now. */
	if (inside && !await(second))
		return false;
	ptrace(PTRACE_CONT, pid, NULL, NULL);
	if (!await(first) || !await(second))
		return false;
	CHECK_IS(cuSimHighest(0, &highest), CUDA_SUCCESS);
	CHECK(highest <= LIMIT_MIB * MIB);
	CHECK(first->result != CUDA_SUCCESS || second->result != CUDA_SUCCESS);
	if (failures != 0)
		fprintf(stderr, "robbed %u instructions after it had the lock: %d and %d\n", instructions,
			first->result, second->result);
	order(first, GIVE);
	order(second, GIVE);
	return await(first) && await(second) && inside && failures == 0;
}

static void whoever_is_robbed_anywhere_does_not_pass_the_limit(void)
{
	unsigned instructions = 0;
	pid_t pid[2];

	gpus(0);
	step = step_make(1, 0, LIMIT_MIB, LIMIT_MIB);
	for (int i = 0; i < 2; i++) {
		if ((pid[i] = fork()) == 0)
			work(&workers[i]);
		order(&workers[i], IDLE);
	}
	cuda_begin(0);
	if (!await(&workers[0]) || !await(&workers[1]))
		return;
	if (ptrace(PTRACE_SEIZE, pid[0], NULL, NULL) != 0) {
		printf("SKIP %s: ptrace: %s\n", __func__, strerror(errno));
	} else {
		while (instructions < MOST_STEPS && round_of(pid[0], instructions))
			instructions++;
		CHECK(instructions > 20); /* else it was never within */
		CHECK(instructions < MOST_STEPS);
	}
	for (int i = 0; i < 2; i++) {
		order(&workers[i], END);
		waitpid(pid[i], NULL, __WALL);
	}
	CHECK_IS(driver_used_bytes(0), 0);
	CHECK(cuMemAlloc_v2(&workers[0].pointer, LIMIT_MIB * MIB) == CUDA_SUCCESS);
	CHECK_IS(step_used_bytes(&step), LIMIT_MIB * MIB);
}

int main(void)
{
	workers = mmap(NULL, 2 * sizeof(*workers), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	gpus(0);
	CASE(whoever_is_robbed_anywhere_does_not_pass_the_limit);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Processes of one job that want more than its share, on a machine whose cores are busy with other
 * things: each has its part of it. */
#include "slices.h"

#define SIBLINGS 8u
#define PERCENT 30u

static struct step step;
static struct worker *sibling[SIBLINGS];
static pid_t bystander[64];
static unsigned bystanders;

/* Who wakes first is not by chance then. */
static void keep_cores_busy(void)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	fflush(NULL);
	for (bystanders = 0; bystanders < 2 * cores && bystanders < 64; bystanders++) {
		bystander[bystanders] = fork();
		if (bystander[bystanders] != 0)
			continue;
		alarm(SLICES_WORKS_S);
		for (;;)
			__asm__ volatile("");
	}
}

static void begin(void)
{
	step = slice_make(1, PERCENT, 0);
	keep_cores_busy();
	for (unsigned i = 0; i < SIBLINGS; i++)
		sibling[i] = worker_start(&step, 1000, 1);
	for (unsigned i = 0; i < SIBLINGS; i++)
		CHECK(worker_waits_for(sibling[i], 10, 20000 * MS));
}

static void end(void)
{
	for (unsigned i = 0; i < SIBLINGS; i++)
		worker_end(sibling[i]);
	for (unsigned i = 0; i < bystanders; i++) {
		kill(bystander[i], SIGKILL);
		waitpid(bystander[i], NULL, 0);
	}
}

/* How many launches the one has had that had fewest of these; *all are those of all. */
static uint32_t least_of(unsigned from, uint64_t for_ns, uint32_t *all)
{
	uint32_t before[SIBLINGS], least = UINT32_MAX;

	for (unsigned i = from; i < SIBLINGS; i++)
		before[i] = launches_of(sibling[i]);
	nanosleep(&(struct timespec){(time_t)(for_ns / 1000000000u), (long)(for_ns % 1000000000u)}, NULL);
	*all = 0;
	for (unsigned i = from; i < SIBLINGS; i++) {
		uint32_t had = launches_of(sibling[i]) - before[i];

		*all += had;
		least = had < least ? had : least;
	}
	return least;
}

/* Those from this one on have equal parts, and together what the job has of the time. */
static void check_parts(unsigned from)
{
	uint32_t least = 0, all = 0, whole = 1000 * PERCENT / 100;
	bool fair = false;

	for (int try = 0; try < 20 && !fair; try++) {
		least = least_of(from, 1000 * MS, &all);
		CHECK(all <= whole * 12 / 10);
		fair = least * (SIBLINGS - from) >= all * 3 / 4 && all >= whole * 9 / 10;
	}
	if (!fair)
		fprintf(stderr, "%u launches, and %u of who had fewest\n", all, least);
	CHECK(fair);
}

static void each_has_its_part(void)
{
	begin();
	check_parts(0);
	check_parts(0);
	end();
}

static void who_does_not_come_back_is_not_waited_for(void)
{
	begin();
	kill(sibling[0]->pid, SIGKILL);
	kill(sibling[1]->pid, SIGSTOP);
	check_parts(2);
	kill(sibling[1]->pid, SIGCONT);
	check_parts(1);
	waitpid(sibling[0]->pid, NULL, 0);
	sibling[0] = worker_start(&step, 1000, 1);
	end();
}

/* How often the GPU has gone from one to the other within this time, and with how many launches. */
static unsigned changes(struct worker *const worker[2], uint64_t for_ns, unsigned *launches)
{
	uint32_t at[2] = {launches_of(worker[0]), launches_of(worker[1])}, to[2];
	unsigned count = 0, last = 2;

	nanosleep(&(struct timespec){(time_t)(for_ns / 1000000000u), (long)(for_ns % 1000000000u)}, NULL);
	for (unsigned i = 0; i < 2; i++)
		to[i] = launches_of(worker[i]);
	*launches = to[0] - at[0] + to[1] - at[1];
	while (at[0] != to[0] && at[1] != to[1]) {
		unsigned next = worker[0]->launched_ns[at[0] % SLICES_LAUNCHES] >
				worker[1]->launched_ns[at[1] % SLICES_LAUNCHES];

		count += last != 2 && next != last;
		last = next;
		at[next]++;
	}
	return count;
}

/* Going from process to process takes the GPU time, which it should spend on their work. */
static void they_take_it_in_rounds(void)
{
	unsigned count = 0, launches = 0;
	bool seldom = false;

	step = slice_make(1, PERCENT, 0);
	for (unsigned i = 0; i < 2; i++)
		sibling[i] = worker_start(&step, 1000, 1);
	for (unsigned i = 0; i < 2; i++)
		CHECK(worker_waits_for(sibling[i], 100, 20000 * MS));
	/* One that is late once, on a busy machine, has lost its round. */
	for (int try = 0; try < 20 && !seldom; try++) {
		count = changes(sibling, 1000 * MS, &launches);
		seldom = launches > 200 && count * 5 <= launches;
	}
	if (!seldom)
		fprintf(stderr, "%u changes with %u launches\n", count, launches);
	CHECK(seldom);
	for (unsigned i = 0; i < 2; i++)
		worker_end(sibling[i]);
}

int main(void)
{
	gpus(0);
	CASE_OF_TIME(each_has_its_part);
	CASE_OF_TIME(they_take_it_in_rounds);
	CASE_OF_TIME(who_does_not_come_back_is_not_waited_for);
	return summary();
}

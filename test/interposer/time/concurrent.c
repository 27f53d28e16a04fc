/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What several streams and several processes of one job are charged, on a GPU in virtual time. */
#include "harness.h"
#include "virtual_job.h"

#define FOR_NS (20 * SECOND)
static const uint32_t percents[] = {10, 30, 50, 75, 90};
#define ALL 5
#define UP_TO_75 4

/* Runs the plan under the first so many shares. Its GPU time is above the share by two points at most, and
 * below by so many thousandths. */
static void check_shares(struct virtual_plan plan, uint32_t shares, uint32_t below)
{
	for (uint32_t i = 0; i < shares; i++) {
		struct fuzz f = {1 + i};
		struct virtual_job *job;
		uint64_t busy, want = percents[i] * 10;

		plan.percent = percents[i];
		plan.for_ns = FOR_NS;
		job = virtual_job_run(&f, &plan);
		/* The first second is for getting to know the kernels. */
		busy = virtual_gpu_busy_ns(&job->gpu, 1000, FOR_NS / MS) / ((FOR_NS - SECOND) / 1000);
		if (busy > want + 20 || busy + below < want) {
			fprintf(stderr, "%llu of 1000, not %llu\n", (unsigned long long)busy,
				(unsigned long long)want);
			failures++;
			virtual_job_say(job);
		}
	}
}

/* What is counted is what was used, where nothing is held back, but for so many percent of it. */
static void check_counted(struct virtual_plan plan, uint32_t off)
{
	struct fuzz f = {1};
	struct virtual_job *job;
	uint64_t busy;

	plan.percent = 99;
	plan.for_ns = FOR_NS;
	job = virtual_job_run(&f, &plan);
	busy = virtual_gpu_busy_ns(&job->gpu, 0, FOR_NS / MS);
	if (job->counted_ns > busy + busy * off / 100 || job->counted_ns + busy * off / 100 < busy) {
		fprintf(stderr, "%llu us counted, not %llu\n", (unsigned long long)job->counted_ns / 1000,
			(unsigned long long)busy / 1000);
		failures++;
		virtual_job_say(job);
	}
}

static struct virtual_thread always(uint32_t stream, uint64_t length_ns)
{
	return (struct virtual_thread){.stream = stream, .streams = 1, .kinds = 1, .length_ns = {length_ns}};
}

/* Short ones that are done all the time must not hide what is still at work. */
static void long_kernels_beside_very_short_ones(void)
{
	static const uint64_t lengths[] = {2 * MS, 8 * MS, 40 * MS};

	for (uint32_t i = 0; i < 6; i++) {
		struct virtual_plan plan = {.processes = 1, .threads = 2, .together = true};

		plan.thread[0][0] = always(0, lengths[i / 2]);
		plan.thread[0][1] = always(1, 10 * US);
		plan.thread[0][0].waits = plan.thread[0][1].waits = i % 2;
		check_shares(plan, ALL, 20);
		plan.thread[0][1].pause_ns = 200 * US;
		check_shares(plan, ALL, 20);
	}
}

/* Who pauses now and then has credit left, for short ones, while a long one is at work. */
static void pauses_do_not_help(void)
{
	for (uint64_t length = 4 * MS; length <= 16 * MS; length *= 2) {
		struct virtual_plan plan = {.processes = 1, .threads = 2, .together = true};

		plan.thread[0][0] = always(0, length);
		plan.thread[0][1] = always(1, 10 * US);
		plan.thread[0][0].waits = true;
		plan.thread[0][0].pause_ns = length / 2;
		plan.thread[0][1].pause_ns = 2 * MS;
		check_shares(plan, UP_TO_75, 20);
	}
}

/* What is seen counts, whatever the kernel took when it was timed. */
static void kernels_that_take_longer_than_ever_before(void)
{
	struct virtual_plan plan = {.processes = 1, .threads = 2, .together = true,
				    .thread[0] = {always(0, 100 * US), always(1, 10 * US)}};

	plan.thread[0][0].rarely_ns = 30 * MS;
	for (uint32_t waits = 0; waits < 2; waits++) {
		plan.thread[0][0].waits = plan.thread[0][1].waits = waits;
		check_shares(plan, UP_TO_75, 20);
	}
}

static void long_kernels_in_front_of_very_short_ones(void)
{
	struct virtual_plan plan = {
		.processes = 1, .threads = 2, .thread[0] = {always(0, 40 * MS), always(1, 10 * US)}};

	check_shares(plan, ALL, 20);
}

/* Kernels that fill the GPU run one after the other, others four at once. */
static void four_streams(uint64_t length_ns, bool together, uint32_t below)
{
	struct virtual_plan plan = {.processes = 1, .threads = 4, .together = together};

	for (uint32_t s = 0; s < 4; s++)
		plan.thread[0][s] = always(s, length_ns);
	check_shares(plan, ALL, below);
}

static void four_streams_one_after_the_other(void)
{
	four_streams(10 * US, false, 20);
	four_streams(100 * US, false, 20);
	four_streams(MS, false, 20);
	four_streams(5 * MS, false, 20);
}

static void four_streams_at_once(void)
{
	/* Nobody sees from outside that they ran at once when all of them are done before the next look. */
	four_streams(100 * US, true, 75);
	four_streams(MS, true, 20);
	four_streams(5 * MS, true, 20);
}

/* Each of them would keep the GPU busy for half of the time. */
static struct virtual_plan half_busy(uint64_t length_ns, bool together)
{
	struct virtual_plan plan = {.processes = 1, .threads = 2, .together = together};

	for (uint32_t s = 0; s < 2; s++) {
		plan.thread[0][s] = always(s, length_ns);
		plan.thread[0][s].waits = true;
		plan.thread[0][s].pause_ns = 2 * length_ns;
	}
	return plan;
}

static void two_streams_half_busy(void)
{
	for (uint64_t length = 100 * US; length <= 10 * MS; length *= 10) {
		/* Kernels that always come behind another stream's are never timed alone. */
		check_shares(half_busy(length, false), UP_TO_75, 50);
		check_counted(half_busy(length, false), 1);
	}
}

/* Short ones count as their sum, as they may have run one after the other. */
static void two_streams_half_busy_at_once(void)
{
	check_shares(half_busy(100 * US, true), UP_TO_75, 75);
	for (uint64_t length = MS; length <= 10 * MS; length *= 10) {
		check_shares(half_busy(length, true), UP_TO_75, 20);
		check_counted(half_busy(length, true), 1);
	}
}

static void a_process_of_long_kernels_beside_one_of_very_short_ones(void)
{
	struct virtual_plan plan = {
		.processes = 2, .threads = 1, .thread = {{always(0, 40 * MS)}, {always(0, 10 * US)}}};

	check_shares(plan, ALL, 20);
	plan.thread[0][0].waits = plan.thread[1][0].waits = true;
	check_shares(plan, ALL, 20);
	plan.thread[1][0].pause_ns = 500 * US;
	check_shares(plan, ALL, 20);
}

/* Whoever waits for another process's time slice sees its own work take longer. */
static void processes_half_busy(void)
{
	for (uint64_t length = 100 * US; length <= 10 * MS; length *= 10) {
		for (uint32_t count = 2; count <= 4; count++) {
			struct virtual_plan plan = {.processes = count, .threads = 1};

			for (uint32_t p = 0; p < count; p++) {
				plan.thread[p][0] = always(0, length);
				plan.thread[p][0].waits = true;
				plan.thread[p][0].pause_ns = 2 * (count - 1) * length;
			}
			check_counted(plan, 8);
			check_shares(plan, UP_TO_75, 30);
		}
	}
}

static void processes_of(uint64_t length_ns)
{
	for (uint32_t count = 1; count <= PROCESSES; count *= 2) {
		struct virtual_plan plan = {.processes = count, .threads = 1};

		for (uint32_t p = 0; p < count; p++)
			plan.thread[p][0] = always(0, length_ns);
		check_shares(plan, ALL, 20);
	}
}

static void one_to_eight_processes_of_1_ms(void)
{
	processes_of(MS);
}

static void one_to_eight_processes_of_short_kernels(void)
{
	processes_of(30 * US);
}

int main(void)
{
	CASE(long_kernels_beside_very_short_ones);
	CASE(pauses_do_not_help);
	CASE(kernels_that_take_longer_than_ever_before);
	CASE(long_kernels_in_front_of_very_short_ones);
	CASE(four_streams_one_after_the_other);
	CASE(four_streams_at_once);
	CASE(two_streams_half_busy);
	CASE(two_streams_half_busy_at_once);
	CASE(a_process_of_long_kernels_beside_one_of_very_short_ones);
	CASE(processes_half_busy);
	CASE(one_to_eight_processes_of_1_ms);
	CASE(one_to_eight_processes_of_short_kernels);
	return summary();
}

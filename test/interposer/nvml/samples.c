/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Over how many samples a driver's percents are to be spread, with times of the test's own. */
#include "harness.h"
#include "nvml/samples.h"

#define MS 1000ull
#define NOW (1700000000ull * 1000 * MS)

static uint64_t at_us[100];

/* Every so many ms, the newest now. */
static uint32_t every(uint64_t ms, uint32_t count, uint64_t window_ms)
{
	for (uint32_t i = 0; i < count; i++)
		at_us[i] = NOW - i * ms * MS;
	return vgpu_samples_taken(at_us, count, window_ms == 0 ? 0 : NOW - window_ms * MS, NOW);
}

static void as_many_as_the_window_has(void)
{
	CHECK_IS(every(200, 10, 2000), 10);
	CHECK_IS(every(1000, 2, 2000), 2);
	CHECK_IS(every(167, 12, 2000), 12);
}

static void idle_time_counts(void)
{
	CHECK_IS(every(200, 3, 2000), 10);
	at_us[0] = NOW - 1800 * MS;
	at_us[1] = NOW - 1600 * MS;
	at_us[2] = NOW;
	CHECK_IS(vgpu_samples_taken(at_us, 3, NOW - 2000 * MS, NOW), 10);
}

static void several_processes_in_one_sample_are_one(void)
{
	for (uint32_t i = 0; i < 20; i++)
		at_us[i] = NOW - i / 2 * 200 * MS;
	CHECK_IS(vgpu_samples_taken(at_us, 20, NOW - 2000 * MS, NOW), 10);
}

static void what_is_no_period_is_none(void)
{
	CHECK_IS(every(1, 2, 2000), 10);
	CHECK_IS(every(5000, 2, 2000), 10);
	CHECK_IS(every(200, 1, 2000), 10);
	CHECK_IS(every(200, 0, 2000), 10);
}

static void no_more_than_is_remembered(void)
{
	CHECK_IS(every(200, 70, 0), 70);
	CHECK_IS(every(200, 70, 60000), 70);
	CHECK_IS(every(200, 80, 0), 80);
	/* A time to come: the clock was set. */
	CHECK_IS(vgpu_samples_taken(at_us, 0, NOW + 1, NOW), 1);
	CHECK_IS(vgpu_samples_taken(at_us, 3, NOW + 1, NOW), 3);
}

int main(void)
{
	CASE(as_many_as_the_window_has);
	CASE(idle_time_counts);
	CASE(several_processes_in_one_sample_are_one);
	CASE(what_is_no_period_is_none);
	CASE(no_more_than_is_remembered);
	return summary();
}

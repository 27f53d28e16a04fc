/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of a cap, without driver and clock. */
#include "gate/bucket.h"
#include "tuning.h"
#include "harness.h"

#include <pthread.h>

#define MS 1000000ull
#define NOW (1000000 * MS)

static uint64_t word;

static uint64_t charged(uint64_t was, uint32_t percent, uint64_t begun_ns, uint64_t busy_ns)
{
	word = was;
	vgpu_bucket_charge(&word, percent, begun_ns, NOW, busy_ns);
	return word;
}

static void what_was_used_is_waited_for(void)
{
	CHECK_IS(charged(NOW, 25, NOW, 10 * MS), NOW + 40 * MS);
	CHECK_IS(charged(NOW + 5 * MS, 50, NOW, 10 * MS), NOW + 25 * MS);
	CHECK_IS(charged(NOW - 30 * MS, 25, NOW, 10 * MS), NOW + 10 * MS);
	CHECK_IS(charged(NOW, 99, NOW, 99 * MS), NOW + 100 * MS);
	CHECK_IS(charged(NOW, 1, NOW, 1 * MS), NOW + 100 * MS);
	word = NOW + 3;
	CHECK_IS(vgpu_bucket_wait(&word, NOW), 3);
	word = NOW;
	CHECK_IS(vgpu_bucket_wait(&word, NOW), 0);
	word = NOW - 1;
	CHECK_IS(vgpu_bucket_wait(&word, NOW), 0);
	word = 0;
	CHECK_IS(vgpu_bucket_wait(&word, NOW), 0);
}

static void a_pause_is_made_up_for_no_longer_than_a_moment(void)
{
	CHECK_IS(charged(0, 50, NOW, 200 * MS), NOW + 150 * MS);
	CHECK_IS(charged(NOW - VGPU_BUCKET_CREDIT_NS, 50, NOW, 200 * MS), NOW + 150 * MS);
	CHECK_IS(charged(NOW - VGPU_BUCKET_CREDIT_NS + 1, 50, NOW, 200 * MS), NOW + 150 * MS + 1);
	/* The clock has only just begun. */
	word = 0;
	vgpu_bucket_charge(&word, 50, 5 * MS, 10 * MS, 1 * MS);
	CHECK_IS(word, 2 * MS);
}

/* A kernel of a second earns while it runs what it uses of the cap. */
static void what_runs_for_long_loses_no_credit(void)
{
	CHECK_IS(charged(NOW - 1000 * MS, 50, NOW - 1000 * MS, 1000 * MS), NOW + 1000 * MS);
	CHECK_IS(charged(0, 50, NOW - 1000 * MS, 1000 * MS), NOW + 750 * MS);
	/* Seen late: long paid for. */
	CHECK_IS(charged(0, 50, NOW - 90000 * MS, 1000 * MS), NOW - 90000 * MS + 1750 * MS);
	/* A beginning that lies ahead is none. */
	CHECK_IS(charged(0, 50, NOW + 5000 * MS, 200 * MS), NOW + 150 * MS);
}

static void no_debt_is_longer_than_the_longest(void)
{
	CHECK_IS(charged(NOW, 1, NOW, 1000 * MS), NOW + VGPU_BUCKET_OWED_NS);
	CHECK_IS(charged(NOW, 1, NOW, UINT64_MAX), NOW + VGPU_BUCKET_OWED_NS);
	CHECK_IS(charged(NOW, 99, NOW, UINT64_MAX / 100), NOW + VGPU_BUCKET_OWED_NS);
	CHECK_IS(charged(NOW + VGPU_BUCKET_OWED_NS, 50, NOW, 1), NOW + VGPU_BUCKET_OWED_NS);
	CHECK_IS(vgpu_bucket_wait(&word, NOW), VGPU_BUCKET_OWED_NS);
	/* By the clock of another core it is a little more. */
	CHECK_IS(vgpu_bucket_wait(&word, NOW - 5), VGPU_BUCKET_OWED_NS + 5);
	CHECK_IS(charged(NOW + VGPU_BUCKET_OWED_NS + 5, 50, NOW, 1), NOW + VGPU_BUCKET_OWED_NS);
}

/* The ledger is the job's own to write. */
static void garbage_holds_nobody(void)
{
	static const uint64_t garbage[] = {UINT64_MAX, UINT64_MAX - NOW, 1ull << 63,
					   NOW + 2 * VGPU_BUCKET_OWED_NS};

	for (unsigned i = 0; i < sizeof(garbage) / sizeof(garbage[0]); i++) {
		word = garbage[i];
		CHECK_IS(vgpu_bucket_wait(&word, NOW), 0);
		CHECK_IS(charged(garbage[i], 25, NOW, 100 * MS), NOW + 150 * MS);
	}
}

static void a_group_takes_two_milliseconds(void)
{
	static const struct {
		uint64_t launch_ns;
		uint32_t launches;
	} of[] = {{0, 1},	{1, 32},      {1000, 32},   {62500, 32},  {64000, 31},	  {100000, 20},
		  {1000000, 2}, {1000001, 1}, {2000000, 1}, {2000001, 1}, {UINT64_MAX, 1}};

	for (unsigned i = 0; i < sizeof(of) / sizeof(of[0]); i++)
		CHECK_IS(vgpu_bucket_launches(of[i].launch_ns), of[i].launches);
}

static void no_cap_is_none(void)
{
	CHECK(!vgpu_bucket_is_capped(0) && !vgpu_bucket_is_capped(100) && !vgpu_bucket_is_capped(UINT32_MAX));
	CHECK(vgpu_bucket_is_capped(1) && vgpu_bucket_is_capped(50) && vgpu_bucket_is_capped(99));
}

/* Two streams at the same time are no more than the time that they took. */
static void time_is_charged_for_once(void)
{
	uint64_t counted = 0;

	/* Alone. */
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW, NOW + 20, 10), 10);
	CHECK_IS(counted, NOW + 10);
	/* After a pause. */
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW + 100, NOW + 130, 30), 30);
	CHECK_IS(counted, NOW + 130);
	/* Beside it, begun when it did. */
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW + 100, NOW + 140, 35), 10);
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW + 100, NOW + 140, 35), 0);
	/* A long one, with short ones beside it that end before. */
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW + 200, NOW + 220, 5), 5);
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW + 200, NOW + 700, 5), 5);
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW + 200, NOW + 1200, 1000), 990);
	/* The clock goes back. */
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW, NOW + 50, 40), 40);
	CHECK_IS(counted, NOW + 40);
	CHECK_IS(vgpu_bucket_at_most(&counted, NOW + 90, NOW + 50, 40), 0);
}

static void *charge_often(void *unused)
{
	for (int i = 0; i < 20000; i++)
		vgpu_bucket_charge(&word, 50, NOW, NOW, 100);
	return unused;
}

static void nothing_is_lost_among_several(void)
{
	pthread_t thread[4];

	word = NOW;
	for (int t = 0; t < 4; t++)
		CHECK(pthread_create(&thread[t], NULL, charge_often, NULL) == 0);
	for (int t = 0; t < 4; t++)
		CHECK(pthread_join(thread[t], NULL) == 0);
	CHECK_IS(word, NOW + 4 * 20000 * 200);
}

/* Kernels of any length, launched as soon as it may be, for a minute: what the slice has, in thousandths. */
static uint64_t had(uint32_t percent, uint64_t busy_ns)
{
	uint64_t at = NOW, used = 0;

	word = NOW;
	while (at < NOW + 60000 * MS) {
		at += vgpu_bucket_wait(&word, at);
		vgpu_bucket_charge(&word, percent, at, at + busy_ns, busy_ns);
		at += busy_ns;
		used += busy_ns;
	}
	at += vgpu_bucket_wait(&word, at);
	return used * 1000 / (at - NOW);
}

static void a_slice_has_its_cap(void)
{
	static const uint64_t lengths[] = {20000, 2 * MS, 7 * MS, 100 * MS, 290 * MS};

	for (uint32_t percent = 1; percent < 100; percent += 7) {
		for (unsigned i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++)
			CHECK_WITHIN(had(percent, lengths[i]), percent * 10 - 1, percent * 10 + 1);
	}
}

int main(void)
{
	CASE(what_was_used_is_waited_for);
	CASE(a_pause_is_made_up_for_no_longer_than_a_moment);
	CASE(what_runs_for_long_loses_no_credit);
	CASE(no_debt_is_longer_than_the_longest);
	CASE(garbage_holds_nobody);
	CASE(a_group_takes_two_milliseconds);
	CASE(no_cap_is_none);
	CASE(time_is_charged_for_once);
	CASE(nothing_is_lost_among_several);
	CASE(a_slice_has_its_cap);
	return summary();
}

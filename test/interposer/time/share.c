/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of the compute share with a clock and a GPU of its own, apart from any driver: what
 * must hold whatever is launched and whenever it is looked at. turn_slices.c does the same for turns. */
#include "fuzz.h"
#include "harness.h"
#include "time/cost.h"
#include "time/share.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define HOUR (3600 * SECOND)
#define BEGIN (100000 * SECOND)
#define TAKE_NS MS /* as admission.c */

/* What was let through until then, less what was given back. */
struct passed {
	uint64_t at_ns;
	int64_t ns;
};

static void check_windows(const struct passed *passed, int count, uint64_t window_ns, uint64_t most_ns)
{
	for (int from = 0; from < count; from++) {
		int64_t sum = 0;

		for (int i = from; i < count && passed[i].at_ns <= passed[from].at_ns + window_ns; i++) {
			sum += passed[i].ns;
			if (sum > (int64_t)most_ns) {
				CHECK(sum <= (int64_t)most_ns);
				return;
			}
		}
	}
}

#define STEPS 2000
static void no_second_gets_more_round(struct fuzz *f)
{
	uint64_t word = fuzz_between(f, 0, BEGIN), now = BEGIN, longest = fuzz_length(f, US, SECOND),
		 from = 0;
	struct vgpu_share share = {&word, 1 + fuzz_below(f, 99),
				   fuzz_below(f, 2) ? VGPU_SHARE_BURST_NS : VGPU_SHARE_WAITED_NS};
	static struct passed passed[STEPS];

	for (int i = 0; i < STEPS; i++) {
		uint64_t need = fuzz_between(f, 1, longest), got = 0;

		passed[i] = (struct passed){.at_ns = now};
		if (fuzz_below(f, 4) != 0) {
			got = vgpu_share_take(&share, now, need, TAKE_NS, &from);
			CHECK(got == 0 || (got >= need && (got == need || got <= TAKE_NS)));
			passed[i].ns = (int64_t)got;
			/* There is credit when it was said. */
			if (got == 0)
				CHECK(from > now);
			if (got == 0 && fuzz_below(f, 2)) {
				passed[i].at_ns = now = from;
				passed[i].ns = (int64_t)vgpu_share_take(&share, now, need, 0, &from);
				CHECK(passed[i].ns != 0);
			}
		} else if (i > 0 && passed[i - 1].ns > 0 && fuzz_below(f, 2)) {
			passed[i].ns = -(int64_t)fuzz_between(f, 0, (uint64_t)passed[i - 1].ns);
			vgpu_share_settle(&share, now, passed[i].ns);
		} else {
			vgpu_share_settle(&share, now, (int64_t)fuzz_between(f, 0, longest));
		}
		now += fuzz_below(f, 3) == 0 ? 0 : fuzz_length(f, US, 100 * MS);
	}
	check_windows(passed, STEPS, SECOND,
		      SECOND * share.percent / 100 + share.burst_ns +
			      (longest > TAKE_NS ? longest : TAKE_NS) + STEPS);
}

static void no_second_gets_more_than_its_share(void)
{
	fuzz_rounds(60, no_second_gets_more_round);
}

/* Whoever stays below keeps at least the credit that a bucket of the burst's size would hold. */
static void below_the_share_round(struct fuzz *f)
{
	uint64_t word = 0, now = BEGIN, from = 0;
	struct vgpu_share share = {&word, 1 + fuzz_below(f, 99), VGPU_SHARE_BURST_NS};
	double credit = VGPU_SHARE_BURST_NS;

	for (int i = 0; i < 20 * STEPS; i++) {
		uint64_t pause = fuzz_length(f, US, 50 * MS), need;

		now += pause;
		credit += (double)(pause * share.percent) / 100;
		credit = credit > VGPU_SHARE_BURST_NS ? VGPU_SHARE_BURST_NS : credit;
		if (credit < 10 * US)
			continue;
		need = fuzz_between(f, 1, (uint64_t)credit - 5 * US);
		if (vgpu_share_take(&share, now, need, 0, &from) != need) {
			CHECK(!"held back below the share");
			return;
		}
		credit -= (double)need;
		if (fuzz_below(f, 3) == 0) {
			vgpu_share_settle(&share, now, -(int64_t)(need / 2));
			credit += (double)need / 2;
		}
		/* No credit out of nothing either. */
		CHECK(vgpu_share_credit(&share, now) <= (int64_t)credit + 20000);
	}
}

static void below_the_share_nobody_waits(void)
{
	fuzz_rounds(20, below_the_share_round);
}

/* However long it was, what was used beyond the share is owed. */
static void debts_are_carried(void)
{
	for (uint32_t percent = 1; percent < 100; percent += 7) {
		uint64_t word = BEGIN, from = 0;
		struct vgpu_share share = {&word, percent, VGPU_SHARE_BURST_NS};

		for (uint64_t debt = MS; debt < 2000 * SECOND; debt *= 10) {
			word = BEGIN;
			vgpu_share_settle(&share, BEGIN, (int64_t)debt);
			CHECK_IS(vgpu_share_take(&share, BEGIN, US, US, &from), 0);
			CHECK(from - BEGIN >=
			      (debt * 100 / percent < HOUR / 2 ? debt * 100 / percent : HOUR / 2));
			CHECK(from - BEGIN <= HOUR);
			vgpu_share_settle(&share, BEGIN + MS, (int64_t)debt);
			/* Also to whoever looked at the clock before that. */
			CHECK_IS(vgpu_share_take(&share, BEGIN, US, US, &from), 0);
		}
	}
}

static void garbage_round(struct fuzz *f)
{
	for (int i = 0; i < STEPS; i++) {
		uint64_t word = fuzz_number(f), now = fuzz_between(f, 0, 2 * BEGIN), from = 0,
			 need = fuzz_between(f, 1, 4 * SECOND);
		struct vgpu_share share = {&word, 1 + fuzz_below(f, 99), VGPU_SHARE_BURST_NS};
		uint64_t got = vgpu_share_take(&share, now, need, TAKE_NS, &from);
		int64_t credit;

		CHECK(got != 0 || (from > now && from <= now + HOUR));
		CHECK(got <= (need > TAKE_NS ? need : TAKE_NS));
		vgpu_share_settle(&share, now,
				  (int64_t)fuzz_between(f, 0, 200 * SECOND) - (int64_t)(100 * SECOND));
		credit = vgpu_share_credit(&share, now);
		CHECK(credit <= (int64_t)share.burst_ns && credit >= -(int64_t)(HOUR / 100 * share.percent));
	}
}

static void garbage_in_the_ledger_is_bounded(void)
{
	fuzz_rounds(20, garbage_round);
}

static void averages_round(struct fuzz *f)
{
	static struct vgpu_cost table[VGPU_COSTS];
	uint64_t mean = fuzz_length(f, 10 * US, 100 * MS), key = vgpu_cost_key(fuzz_next(f), 1), average;
	int timed = 0, launches = 20000, between = 0, believed = 0;

	for (int i = 0; i < launches; i++) {
		struct vgpu_cost *cost = vgpu_cost_of(table, key);
		bool due = vgpu_cost_due(cost, false);

		CHECK(i != 0 || !due);
		timed += due;
		/* From half to one and a half of it; now and then something came between. What is so three
		 * times in a row it takes. */
		if (due) {
			between = fuzz_below(f, 50) == 0 ? between + 1 : 0;
			believed = between == 3 ? 32 : believed - (believed > 0);
			vgpu_cost_learn(table, key,
					between != 0 ? mean * 100 : fuzz_between(f, mean / 2, mean * 3 / 2));
		}
		if (i > 1000 && believed == 0) {
			average = vgpu_cost_of(table, key)->average_ns;
			CHECK(average >= mean / 2 && average <= mean * 3 / 2);
		}
		vgpu_cost_of(table,
			     vgpu_cost_key(fuzz_next(f),
					   2)); /* those seen once drive out each other, not the known */
	}
	CHECK(timed >= launches / 300);
	CHECK(mean > MS || (uint64_t)timed <= 100 + 2 * (uint64_t)launches * mean / (2 * MS) / 4 +
						      (uint64_t)launches / 200);
}

static void averages_are_right_and_seldom_renewed(void)
{
	fuzz_rounds(10, averages_round);
}

/* Timed beside others a kernel takes longer by what is in its way. */
static void beside_round(struct fuzz *f)
{
	static struct vgpu_cost table[VGPU_COSTS];
	uint64_t mean = fuzz_length(f, 10 * US, 10 * MS), key = vgpu_cost_key(fuzz_next(f), 1);
	uint32_t alone = 2 + fuzz_below(f, 20), put_off = 0, timed = 0;

	vgpu_cost_of(table, key);
	vgpu_cost_learn(table, key, mean);
	for (int i = 0; i < 40000; i++) {
		struct vgpu_cost *cost = vgpu_cost_of(table, key);

		if (!vgpu_cost_due(cost, false))
			continue;
		if (fuzz_below(f, alone) == 0) {
			vgpu_cost_alone(cost, false);
			vgpu_cost_learn(table, key, mean);
		} else if (!vgpu_cost_put_off(cost, false)) {
			vgpu_cost_learn_beside(table, key, fuzz_between(f, mean, 4 * mean));
			timed++;
		} else {
			put_off++;
			CHECK(vgpu_cost_due(cost, false)); /* the next one is */
		}
		CHECK(cost->average_ns >= mean && cost->average_ns <= mean * 3 / 2);
	}
	CHECK(put_off >= timed);
	/* A kernel that really takes longer from now on, and is never alone. */
	for (int i = 0; i < 400000; i++) {
		struct vgpu_cost *cost = vgpu_cost_of(table, key);

		if (vgpu_cost_due(cost, false) && !vgpu_cost_put_off(cost, false))
			vgpu_cost_learn_beside(table, key, 3 * mean);
	}
	CHECK(vgpu_cost_of(table, key)->average_ns > 2 * mean);
}

static void what_was_in_the_way_is_not_learnt(void)
{
	fuzz_rounds(10, beside_round);
}

/* How many of the launches are due, and of these: that are timed. One in so many that are due finds its
 * stream idle; 0: none. */
static uint32_t due_of(struct vgpu_cost *table, struct vgpu_cost *cost, uint32_t launches, uint32_t one_in,
		       uint32_t *timed)
{
	uint32_t due = 0;

	*timed = 0;
	for (uint32_t i = 0; i < launches; i++) {
		if (!vgpu_cost_due(cost, true))
			continue;
		due++;
		if (one_in != 0 && due % one_in == 0)
			vgpu_cost_alone(cost, true);
		else if (cost->samples >= 16 && vgpu_cost_put_off(cost, true))
			continue;
		vgpu_cost_learn(table, cost->key, 5 * US);
		(*timed)++;
	}
	return due;
}

/* A launch that is due costs the program more than others. One in a thousand is, where its stream is idle:
 * where it seldom or never is, as with kernels that come right behind others, there are hardly more. */
static void what_seldom_has_a_good_moment_is_seldom_due(void)
{
	static struct vgpu_cost table[VGPU_COSTS];
	struct vgpu_cost *cost = vgpu_cost_of(table, vgpu_cost_key(1, 1));
	uint32_t timed, launches = 200000, due = due_of(table, cost, launches, 0, &timed);

	CHECK_WITHIN(timed, 100, 400);
	CHECK_WITHIN(due, timed + 32, launches / 200);
	/* The moment comes after all: the next time it is waited for as before. */
	vgpu_cost_alone(cost, true);
	for (due = 1; vgpu_cost_put_off(cost, true); due++)
		CHECK(vgpu_cost_due(cost, true));
	CHECK_IS(due, 32);
	vgpu_cost_alone(cost, true);
	for (uint32_t one_in = 2; one_in <= 32; one_in++) {
		due = due_of(table, cost, launches, one_in, &timed);
		CHECK_WITHIN(timed, launches / 6000, launches / 1000);
		CHECK_WITHIN(due, timed, launches / 125);
	}
}

/* Kernels of one key of which some take many times as long as most: those that are not seen to be at work are
 * the short ones. */
static void brief_round(struct fuzz *f)
{
	static struct vgpu_cost table[VGPU_COSTS];
	uint64_t brief = fuzz_between(f, 5 * US, VGPU_BRIEF_NS / 2),
		 longer = fuzz_between(f, 20, 200) * brief;
	uint64_t key = vgpu_cost_key(fuzz_next(f), 1);
	uint32_t one_in = 8 + fuzz_below(f, 10);
	const struct vgpu_cost *cost = vgpu_cost_of(table, key);

	for (int i = 0; i < 1000; i++) {
		CHECK_IS(vgpu_cost_unseen_ns(cost), i == 0 ? 0 : brief);
		vgpu_cost_learn(table, key, brief);
	}
	for (int i = 0; i < 1000; i++) {
		vgpu_cost_learn(table, key, fuzz_below(f, one_in) == 0 ? longer : brief);
		CHECK(vgpu_cost_unseen_ns(cost) <= (uint64_t)cost->average_ns);
		CHECK(longer < VGPU_BRIEF_NS || vgpu_cost_unseen_ns(cost) <= 6 * brief);
	}
	/* There are no short ones any more. */
	for (int i = 0; i < 200; i++)
		vgpu_cost_learn(table, key, longer);
	CHECK_IS(vgpu_cost_unseen_ns(cost), cost->average_ns);
	CHECK(cost->average_ns >= longer / 10 * 9);
}

static void what_is_not_seen_is_brief(void)
{
	fuzz_rounds(20, brief_round);
}

/* Kernels that take less behind another one than alone, timed in groups with other things in between now and
 * then. */
static void saved_round(struct fuzz *f)
{
	uint64_t alone = fuzz_length(f, 2 * US, 40 * US),
		 less = fuzz_below(f, (uint32_t)(alone / 2 < 1400 ? alone / 2 : 1400));
	uint32_t saved = 0, launches = 16 + fuzz_below(f, 100), ns;

	for (int i = 0; i < 200; i++) {
		uint64_t between = i > 20 && i < 150 && fuzz_below(f, 30) == 0 ? fuzz_below(f, 10 * MS) : 0;

		ns = vgpu_cost_saved_ns(saved);
		saved = vgpu_cost_saved(saved, launches, launches * (alone - ns),
					launches * (alone - less) + between);
		/* Neither says anything. */
		CHECK_IS(vgpu_cost_saved(saved, 15, 15 * alone, alone), saved);
		CHECK_IS(vgpu_cost_saved(saved, launches, launches * 60ull * US, launches * alone), saved);
	}
	ns = vgpu_cost_saved_ns(saved);
	CHECK(ns <= less + 10 && ns + 10 >= less);
}

static void what_is_saved_in_a_row_is_learnt(void)
{
	CHECK_IS(vgpu_cost_saved_ns(0), 240);
	CHECK_IS(vgpu_cost_saved_ns(vgpu_cost_saved(0, 100, 100000, UINT64_MAX / 2)), 0);
	fuzz_rounds(20, saved_round);
}

int main(void)
{
	CASE(no_second_gets_more_than_its_share);
	CASE(below_the_share_nobody_waits);
	CASE(debts_are_carried);
	CASE(garbage_in_the_ledger_is_bounded);
	CASE(averages_are_right_and_seldom_renewed);
	CASE(what_was_in_the_way_is_not_learnt);
	CASE(what_seldom_has_a_good_moment_is_seldom_due);
	CASE(what_is_not_seen_is_brief);
	CASE(what_is_saved_in_a_row_is_learnt);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The arithmetic of the compute share with a clock and a GPU of its own, apart from any driver: what
 * must hold whatever is launched and whenever it is looked at. controller_turns.c does the same for turns. */
#include "fuzz.h"
#include "harness.h"
#include "cost.h"
#include "meter.h"
#include "pieces.h"
#include "share.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define HOUR (3600 * SECOND)
#define BEGIN (100000 * SECOND)
#define TAKE_NS MS /* as gate.c */
#define GROUP_NS (200 * US) /* as groups.c */

static uint64_t between(struct fuzz *f, uint64_t least, uint64_t most)
{
	return least + fuzz_next(f) % (most - least + 1);
}

/* From least to most, every order of magnitude as often. */
static uint64_t any_length(struct fuzz *f, uint64_t least, uint64_t most)
{
	uint64_t length = least;

	while (length < most && fuzz_below(f, 4) != 0)
		length *= 2;
	length += between(f, 0, length);
	return length < most ? length : most;
}

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
	uint64_t word = between(f, 0, BEGIN), now = BEGIN, longest = any_length(f, US, SECOND), from = 0;
	struct vgpu_share share = {&word, 1 + fuzz_below(f, 99), fuzz_below(f, 2) ? VGPU_SHARE_BURST_NS : VGPU_SHARE_WAITED_NS};
	static struct passed passed[STEPS];

	for (int i = 0; i < STEPS; i++) {
		uint64_t need = between(f, 1, longest), got = 0;

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
			passed[i].ns = -(int64_t)between(f, 0, (uint64_t)passed[i - 1].ns);
			vgpu_share_settle(&share, now, passed[i].ns);
		} else {
			vgpu_share_settle(&share, now, (int64_t)between(f, 0, longest));
		}
		now += fuzz_below(f, 3) == 0 ? 0 : any_length(f, US, 100 * MS);
	}
	check_windows(passed, STEPS, SECOND, SECOND * share.percent / 100 + share.burst_ns + (longest > TAKE_NS ? longest : TAKE_NS) + STEPS);
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
		uint64_t pause = any_length(f, US, 50 * MS), need;

		now += pause;
		credit += (double)(pause * share.percent) / 100;
		credit = credit > VGPU_SHARE_BURST_NS ? VGPU_SHARE_BURST_NS : credit;
		if (credit < 10 * US)
			continue;
		need = between(f, 1, (uint64_t)credit - 5 * US);
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
			CHECK(from - BEGIN >= (debt * 100 / percent < HOUR / 2 ? debt * 100 / percent : HOUR / 2) && from - BEGIN <= HOUR);
			vgpu_share_settle(&share, BEGIN + MS, (int64_t)debt);
			/* Also to whoever looked at the clock before that. */
			CHECK_IS(vgpu_share_take(&share, BEGIN, US, US, &from), 0);
		}
	}
}

static void garbage_round(struct fuzz *f)
{
	for (int i = 0; i < STEPS; i++) {
		uint64_t word = fuzz_number(f), now = between(f, 0, 2 * BEGIN), from = 0, need = between(f, 1, 4 * SECOND);
		struct vgpu_share share = {&word, 1 + fuzz_below(f, 99), VGPU_SHARE_BURST_NS};
		uint64_t got = vgpu_share_take(&share, now, need, TAKE_NS, &from);
		int64_t credit;

		CHECK(got != 0 || (from > now && from <= now + HOUR));
		CHECK(got <= (need > TAKE_NS ? need : TAKE_NS));
		vgpu_share_settle(&share, now, (int64_t)between(f, 0, 200 * SECOND) - (int64_t)(100 * SECOND));
		credit = vgpu_share_credit(&share, now);
		CHECK(credit <= (int64_t)share.burst_ns && credit >= -(int64_t)(HOUR / 100 * share.percent));
	}
}

static void garbage_in_the_ledger_is_bounded(void)
{
	fuzz_rounds(20, garbage_round);
}

static void garbage_pieces_round(struct fuzz *f)
{
	static struct vgpu_pieces pieces;

	fuzz_bytes(f, &pieces, sizeof(pieces));
	for (int i = 0; i < STEPS; i++) {
		uint64_t now = between(f, SECOND, 2 * BEGIN), from = now - any_length(f, US, SECOND / 2), to = from + any_length(f, US, SECOND / 2);
		uint64_t number = from / VGPU_PIECE_NS, got;

		to = to < now ? to : now;
		for (uint64_t n = number; n <= to / VGPU_PIECE_NS; n++) {
			if (fuzz_below(f, 4) == 0)
				pieces.word[n % VGPU_PIECES] = fuzz_below(f, 2) ? fuzz_number(f) : n << 17 | fuzz_below(f, 1u << 17);
		}
		got = vgpu_pieces_count(&pieces, from, to, UINT64_MAX, now);
		CHECK(got <= to - from);
		CHECK_IS(vgpu_pieces_count(&pieces, to + 1, from, UINT64_MAX, now), 0);
		got = fuzz_number(f);
		CHECK(vgpu_pieces_count(&pieces, fuzz_number(f), fuzz_number(f), got, fuzz_number(f)) <= got);
		/* It goes by itself. */
		memset(pieces.word, 0xff, sizeof(pieces.word));
		CHECK_IS(vgpu_pieces_count(&pieces, from, to, UINT64_MAX, now), to - from);
		if (to - from < VGPU_PIECES / 2 * VGPU_PIECE_NS)
			CHECK(vgpu_pieces_count(&pieces, from, to, UINT64_MAX, now) <= 2 * VGPU_PIECE_NS);
	}
}

static void garbage_in_pieces_is_bounded(void)
{
	fuzz_rounds(10, garbage_pieces_round);
}

/* Several processes count the same time, some of them late: they add up to as much as there was, and to no less
 * than each of them counted. */
static void processes_round(struct fuzz *f)
{
	static struct vgpu_pieces pieces;
	uint64_t until[4] = {BEGIN, BEGIN, BEGIN, BEGIN}, now = BEGIN, sum = 0, counted[4] = {0};
	bool all_day = fuzz_below(f, 2);

	memset(&pieces, 0, sizeof(pieces));
	for (int i = 0; i < STEPS; i++) {
		uint32_t who = fuzz_below(f, 4);
		uint64_t from, to, used;

		now += any_length(f, US, 2 * MS);
		from = all_day ? until[who] : between(f, until[who], now);
		to = all_day ? now : between(f, from, now);
		used = vgpu_pieces_count(&pieces, from, to, UINT64_MAX, now);
		CHECK(used <= to - from);
		sum += used;
		counted[who] += to - from;
		until[who] = to;
	}
	/* What is longer ago than pieces tell may count again, the longest steps of one process all of it. */
	CHECK(sum <= now - BEGIN + VGPU_PIECE_NS);
	for (int i = 0; i < 4; i++)
		CHECK(sum + 100 * US >= counted[i]);
	if (all_day)
		CHECK(sum + 4 * 10 * MS >= now - BEGIN);
}

static void processes_add_up_to_the_time_there_was(void)
{
	fuzz_rounds(40, processes_round);
}

/* The spans against a list of what was counted, microsecond by microsecond. */
#define LISTED 20000
static void spans_round(struct fuzz *f)
{
	static bool listed[LISTED];
	struct vgpu_timeline timeline = {0};
	uint64_t at = 0;

	memset(listed, 0, sizeof(listed));
	while (at < LISTED - 1000) {
		uint64_t from = at > 300 ? at - between(f, 0, 300) : at, to = at + between(f, 0, 600), want = 0, ns = fuzz_below(f, 2) ? UINT64_MAX : between(f, 0, 300);
		bool take = fuzz_below(f, 6) == 0;
		struct vgpu_fresh fresh;

		for (uint64_t us = from; us < to; us++)
			want += !listed[us];
		CHECK_IS(vgpu_timeline_room(&timeline, from, to), want);
		want = 0;
		for (uint64_t us = from; us < to && want < ns; us++) {
			want += listed[us] == take;
			listed[us] = !take;
		}
		if (take) {
			CHECK_IS(vgpu_timeline_take(&timeline, from, to, ns), want);
		} else {
			vgpu_timeline_count(&timeline, from, to, ns, &fresh);
			CHECK_IS(fresh.ns, want);
			for (uint32_t i = 0; i < fresh.count; i++)
				want -= fresh.span[i].to_ns - fresh.span[i].from_ns;
			CHECK_IS(want, 0);
		}
		for (uint32_t i = 0; i < timeline.count; i++)
			CHECK(timeline.span[i].from_ns < timeline.span[i].to_ns && (i == 0 || timeline.span[i - 1].to_ns < timeline.span[i].from_ns));
		at += between(f, 0, 150);
		if (fuzz_below(f, 20) == 0) {
			vgpu_timeline_forget(&timeline, at);
			/* Nothing is asked of what was forgotten. */
			at += 301;
		}
	}
}

static void spans_are_what_was_counted(void)
{
	fuzz_rounds(40, spans_round);
}

/* More spans than have places: what is forgotten is what was idle long ago. */
static void old_spans_run_together(void)
{
	struct vgpu_timeline timeline = {0};
	struct vgpu_fresh fresh;

	for (uint64_t i = 1; i <= 10 * VGPU_SPANS; i++) {
		vgpu_timeline_count(&timeline, BEGIN + i * MS, BEGIN + i * MS + 10 * US, UINT64_MAX, &fresh);
		CHECK_IS(fresh.ns, 10 * US);
		CHECK(timeline.count <= VGPU_SPANS);
	}
	CHECK_IS(vgpu_timeline_room(&timeline, BEGIN + 10 * VGPU_SPANS * MS - 5 * MS, BEGIN + 10 * VGPU_SPANS * MS), 5 * MS - 50 * US);
	CHECK_IS(vgpu_timeline_room(&timeline, BEGIN + MS, BEGIN + 50 * MS), 0);
	vgpu_timeline_count(&timeline, 0, UINT64_MAX, UINT64_MAX, &fresh);
	CHECK_IS(timeline.count, 1);
}

/* One group, and all that can have happened: what is counted lies within what is possible. */
static void bounds_round(struct fuzz *f)
{
	for (int i = 0; i < STEPS; i++) {
		struct vgpu_meter_device device = {.together = fuzz_below(f, 2) ? 0 : 2 * VGPU_TOGETHER};
		struct vgpu_meter meter = {fuzz_below(f, 2) ? BEGIN - between(f, 0, 10 * MS) : BEGIN + between(f, 0, 10 * MS)};
		uint64_t first = BEGIN, last = first + any_length(f, US, 100 * MS), length = any_length(f, 10 * US, SECOND);
		uint64_t start = (first + VGPU_LAUNCH_NS > meter.done_ns ? first + VGPU_LAUNCH_NS : meter.done_ns);
		uint64_t last_start = last + VGPU_LAUNCH_NS > start ? last + VGPU_LAUNCH_NS : start, end = last_start + length;
		uint64_t pending = fuzz_below(f, 4) == 0 ? 0 : end - between(f, 1, length), before = meter.done_ns, counted = 0;
		struct vgpu_measured work = {
			.first_ns = first, .last_ns = last, .pending_ns = pending, .reached_ns = end + any_length(f, US, 50 * MS),
			.expected_ns = fuzz_below(f, 8) == 0 ? VGPU_UNKNOWN_NS : any_length(f, US, 4 * SECOND)};
		uint64_t surely = pending > last_start ? pending - last_start : 0;
		struct vgpu_busy busy;

		/* What the stream had to do before was counted before. */
		vgpu_timeline_count(&device.timeline, BEGIN - SECOND, start, UINT64_MAX, &busy.fresh);
		/* Seen again and again. */
		for (uint64_t seen = pending != 0 ? last : UINT64_MAX; seen < pending; counted += busy.fresh.ns) {
			seen = seen + 20 * MS < pending ? seen + any_length(f, US, 20 * MS) : pending;
			work.pending_ns = seen;
			busy = vgpu_meter_pending(&device, &work);
			vgpu_meter_left(&device, &busy, busy.fresh.ns);
		}
		CHECK_IS(counted, surely);
		busy = vgpu_meter_finish(&device, &meter, &work);
		counted += busy.fresh.ns;
		CHECK(counted >= surely && counted <= work.reached_ns - start);
		CHECK(busy.start_ns == start && busy.end_ns <= work.reached_ns && busy.busy_ns <= work.reached_ns - start);
		CHECK(meter.done_ns >= before && meter.done_ns <= work.reached_ns);
		/* What is expected decides where it can be true. */
		if (work.expected_ns >= surely && work.expected_ns <= work.reached_ns - start)
			CHECK_IS(counted, work.expected_ns);
		if (work.expected_ns == VGPU_UNKNOWN_NS)
			CHECK_IS(counted, work.reached_ns - start);
	}
}

static void what_is_counted_lies_within_what_is_possible(void)
{
	fuzz_rounds(20, bounds_round);
}

/* Whatever clocks and claims say. */
static void nonsense_round(struct fuzz *f)
{
	struct vgpu_meter_device device = {0};

	for (int i = 0; i < STEPS; i++) {
		struct vgpu_meter meter = {fuzz_number(f) >> 2};
		struct vgpu_measured work = {
			.first_ns = fuzz_number(f) >> 2, .last_ns = fuzz_number(f) >> 2, .pending_ns = fuzz_number(f) >> 2,
			.reached_ns = fuzz_number(f) >> 2, .expected_ns = fuzz_number(f), .held_until_ns = fuzz_number(f) >> 2};
		struct vgpu_busy busy;

		if (fuzz_below(f, 2)) {
			busy = vgpu_meter_pending(&device, &work);
			vgpu_meter_left(&device, &busy, fuzz_number(f));
			CHECK(busy.fresh.ns <= busy.busy_ns && busy.fresh.count <= VGPU_SPANS + 1);
		}
		busy = vgpu_meter_finish(&device, &meter, &work);
		CHECK(busy.fresh.ns <= (work.reached_ns > busy.start_ns ? work.reached_ns - busy.start_ns : 0));
		CHECK(busy.fresh.count <= VGPU_SPANS + 1);
		if (fuzz_below(f, 2))
			vgpu_meter_rest(&device, fuzz_number(f));
	}
}

static void the_meter_takes_nonsense(void)
{
	fuzz_rounds(20, nonsense_round);
}

static void averages_round(struct fuzz *f)
{
	static struct vgpu_cost table[VGPU_COSTS];
	uint64_t mean = any_length(f, 10 * US, 100 * MS), key = vgpu_cost_key(fuzz_next(f), 1), average;
	int timed = 0, launches = 20000;

	for (int i = 0; i < launches; i++) {
		struct vgpu_cost *cost = vgpu_cost_of(table, key);
		bool due = vgpu_cost_due(cost);

		CHECK(i != 0 || !due);
		timed += due;
		/* From half to one and a half of it; now and then something came between. */
		if (due)
			vgpu_cost_learn(table, key, fuzz_below(f, 50) == 0 ? mean * 100 : between(f, mean / 2, mean * 3 / 2));
		if (i > 1000) {
			average = vgpu_cost_of(table, key)->average_ns;
			CHECK(average >= mean / 2 && average <= mean * 3 / 2);
		}
		vgpu_cost_of(table, vgpu_cost_key(fuzz_next(f), 2)); /* those seen once drive out each other, not the known */
	}
	CHECK(timed >= launches / 300);
	CHECK(mean > MS || (uint64_t)timed <= 100 + 2 * (uint64_t)launches * mean / (2 * MS) / 4 + (uint64_t)launches / 200);
}

static void averages_are_right_and_seldom_renewed(void)
{
	fuzz_rounds(10, averages_round);
}

/* Timed beside others a kernel takes longer by what is in its way. */
static void beside_round(struct fuzz *f)
{
	static struct vgpu_cost table[VGPU_COSTS];
	uint64_t mean = any_length(f, 10 * US, 10 * MS), key = vgpu_cost_key(fuzz_next(f), 1);
	uint32_t alone = 2 + fuzz_below(f, 20), put_off = 0, timed = 0;

	vgpu_cost_of(table, key);
	vgpu_cost_learn(table, key, mean);
	for (int i = 0; i < 40000; i++) {
		struct vgpu_cost *cost = vgpu_cost_of(table, key);

		if (!vgpu_cost_due(cost))
			continue;
		if (fuzz_below(f, alone) == 0) {
			vgpu_cost_learn(table, key, mean);
		} else if (!vgpu_cost_put_off(cost)) {
			vgpu_cost_learn_beside(table, key, between(f, mean, 4 * mean));
			timed++;
		} else {
			put_off++;
			CHECK(vgpu_cost_due(cost)); /* the next one is */
		}
		CHECK(cost->average_ns >= mean && cost->average_ns <= mean * 3 / 2);
	}
	CHECK(put_off >= 31 * timed);
	/* A kernel that really takes longer from now on, and is never alone. */
	for (int i = 0; i < 400000; i++) {
		struct vgpu_cost *cost = vgpu_cost_of(table, key);

		if (vgpu_cost_due(cost) && !vgpu_cost_put_off(cost))
			vgpu_cost_learn_beside(table, key, 3 * mean);
	}
	CHECK(vgpu_cost_of(table, key)->average_ns > 2 * mean);
}

static void what_was_in_the_way_is_not_learnt(void)
{
	fuzz_rounds(10, beside_round);
}

int main(void)
{
	CASE(no_second_gets_more_than_its_share);
	CASE(below_the_share_nobody_waits);
	CASE(debts_are_carried);
	CASE(garbage_in_the_ledger_is_bounded);
	CASE(garbage_in_pieces_is_bounded);
	CASE(processes_add_up_to_the_time_there_was);
	CASE(spans_are_what_was_counted);
	CASE(old_spans_run_together);
	CASE(what_is_counted_lies_within_what_is_possible);
	CASE(the_meter_takes_nonsense);
	CASE(averages_are_right_and_seldom_renewed);
	CASE(what_was_in_the_way_is_not_learnt);
	return summary();
}

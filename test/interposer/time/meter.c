/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The parts that GPU time is counted with, each by itself: what must hold whatever is seen and whenever.
 * control_loop.c and concurrent.c try them together. */
#include "fuzz.h"
#include "harness.h"
#include "time/meter.h"
#include "time/buckets.h"

#define US 1000ull
#define MS 1000000ull
#define SECOND 1000000000ull
#define BEGIN (100000 * SECOND)
#define STEPS 2000

static void garbage_pieces_round(struct fuzz *f)
{
	static struct vgpu_buckets buckets;

	fuzz_bytes(f, &buckets, sizeof(buckets));
	for (int i = 0; i < STEPS; i++) {
		uint64_t now = fuzz_between(f, SECOND, 2 * BEGIN),
			 from = now - fuzz_length(f, US, SECOND / 2);
		uint64_t to = from + fuzz_length(f, US, SECOND / 2);
		uint64_t number = from / VGPU_BUCKET_NS, got;

		to = to < now ? to : now;
		for (uint64_t n = number; n <= to / VGPU_BUCKET_NS; n++) {
			if (fuzz_below(f, 4) == 0)
				buckets.word[n % VGPU_BUCKETS] =
					fuzz_below(f, 2) ? fuzz_number(f) : n << 17 | fuzz_below(f, 1u << 17);
		}
		got = vgpu_buckets_count(&buckets, from, to, UINT64_MAX, now);
		CHECK(got <= to - from);
		CHECK_IS(vgpu_buckets_count(&buckets, to + 1, from, UINT64_MAX, now), 0);
		got = fuzz_number(f);
		CHECK(vgpu_buckets_count(&buckets, fuzz_number(f), fuzz_number(f), got, fuzz_number(f)) <=
		      got);
		/* It goes by itself. */
		memset(buckets.word, 0xff, sizeof(buckets.word));
		CHECK_IS(vgpu_buckets_count(&buckets, from, to, UINT64_MAX, now), to - from);
		if (to - from < VGPU_BUCKETS / 2 * VGPU_BUCKET_NS)
			CHECK(vgpu_buckets_count(&buckets, from, to, UINT64_MAX, now) <= 2 * VGPU_BUCKET_NS);
	}
}

static void garbage_in_pieces_is_bounded(void)
{
	fuzz_rounds(10, garbage_pieces_round);
}

/* Several processes count the same time, some of them late: they add up to as much as there was, and to no
 * less than each of them counted. */
static void processes_round(struct fuzz *f)
{
	static struct vgpu_buckets buckets;
	uint64_t until[4] = {BEGIN, BEGIN, BEGIN, BEGIN}, now = BEGIN, sum = 0, counted[4] = {0};
	bool all_day = fuzz_below(f, 2);

	memset(&buckets, 0, sizeof(buckets));
	for (int i = 0; i < STEPS; i++) {
		uint32_t who = fuzz_below(f, 4);
		uint64_t from, to, used;

		now += fuzz_length(f, US, 2 * MS);
		from = all_day ? until[who] : fuzz_between(f, until[who], now);
		to = all_day ? now : fuzz_between(f, from, now);
		used = vgpu_buckets_count(&buckets, from, to, UINT64_MAX, now);
		CHECK(used <= to - from);
		sum += used;
		counted[who] += to - from;
		until[who] = to;
	}
	/* What is longer ago than buckets tell may count again, the longest steps of one process all of
	 * it. */
	CHECK(sum <= now - BEGIN + VGPU_BUCKET_NS);
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
	struct vgpu_intervals intervals = {0};
	uint64_t at = 0;

	memset(listed, 0, sizeof(listed));
	while (at < LISTED - 1000) {
		uint64_t from = at > 300 ? at - fuzz_between(f, 0, 300) : at,
			 to = at + fuzz_between(f, 0, 600);
		uint64_t want = 0, ns = fuzz_below(f, 2) ? UINT64_MAX : fuzz_between(f, 0, 300);
		bool take = fuzz_below(f, 6) == 0;
		struct vgpu_fresh fresh;

		for (uint64_t us = from; us < to; us++)
			want += !listed[us];
		CHECK_IS(vgpu_intervals_room(&intervals, from, to), want);
		want = 0;
		for (uint64_t us = from; us < to && want < ns; us++) {
			want += listed[us] == take;
			listed[us] = !take;
		}
		if (take) {
			CHECK_IS(vgpu_intervals_take(&intervals, from, to, ns), want);
		} else {
			vgpu_intervals_count(&intervals, from, to, ns, &fresh);
			CHECK_IS(fresh.ns, want);
			for (uint32_t i = 0; i < fresh.count; i++)
				want -= fresh.interval[i].to_ns - fresh.interval[i].from_ns;
			CHECK_IS(want, 0);
		}
		for (uint32_t i = 0; i < intervals.count; i++) {
			CHECK(intervals.interval[i].from_ns < intervals.interval[i].to_ns);
			CHECK(i == 0 || intervals.interval[i - 1].to_ns < intervals.interval[i].from_ns);
		}
		at += fuzz_between(f, 0, 150);
		if (fuzz_below(f, 20) == 0) {
			vgpu_intervals_forget(&intervals, at);
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
	struct vgpu_intervals intervals = {0};
	struct vgpu_fresh fresh;

	for (uint64_t i = 1; i <= 10 * VGPU_INTERVALS; i++) {
		vgpu_intervals_count(&intervals, BEGIN + i * MS, BEGIN + i * MS + 10 * US, UINT64_MAX,
				     &fresh);
		CHECK_IS(fresh.ns, 10 * US);
		CHECK(intervals.count <= VGPU_INTERVALS);
	}
	CHECK_IS(vgpu_intervals_room(&intervals, BEGIN + 10 * VGPU_INTERVALS * MS - 5 * MS,
				     BEGIN + 10 * VGPU_INTERVALS * MS),
		 5 * MS - 50 * US);
	CHECK_IS(vgpu_intervals_room(&intervals, BEGIN + MS, BEGIN + 50 * MS), 0);
	vgpu_intervals_count(&intervals, 0, UINT64_MAX, UINT64_MAX, &fresh);
	CHECK_IS(intervals.count, 1);
}

/* One group, and all that can have happened: what is counted lies within what is possible. */
static void bounds_round(struct fuzz *f)
{
	for (int i = 0; i < STEPS; i++) {
		struct vgpu_meter_device device = {.together = fuzz_below(f, 2) ? 0 : 2 * VGPU_TOGETHER};
		struct vgpu_meter meter = {fuzz_below(f, 2) ? BEGIN - fuzz_between(f, 0, 10 * MS)
							    : BEGIN + fuzz_between(f, 0, 10 * MS)};
		uint64_t first = BEGIN, last = first + fuzz_length(f, US, 100 * MS),
			 length = fuzz_length(f, 10 * US, SECOND);
		uint64_t start =
			(first + VGPU_LAUNCH_NS > meter.done_ns ? first + VGPU_LAUNCH_NS : meter.done_ns);
		uint64_t last_start = last + VGPU_LAUNCH_NS > start ? last + VGPU_LAUNCH_NS : start,
			 end = last_start + length;
		uint64_t pending = fuzz_below(f, 4) == 0 ? 0 : end - fuzz_between(f, 1, length),
			 before = meter.done_ns, counted = 0;
		struct vgpu_measured work = {.first_ns = first,
					     .last_ns = last,
					     .pending_ns = pending,
					     .reached_ns = end + fuzz_length(f, US, 50 * MS),
					     .expected_ns = fuzz_below(f, 8) == 0
								    ? VGPU_UNKNOWN_NS
								    : fuzz_length(f, US, 4 * SECOND)};
		uint64_t surely = pending > last_start ? pending - last_start : 0;
		struct vgpu_busy busy;

		/* What the stream had to do before was counted before. */
		vgpu_intervals_count(&device.intervals, BEGIN - SECOND, start, UINT64_MAX, &busy.fresh);
		/* Seen again and again. */
		for (uint64_t seen = pending != 0 ? last : UINT64_MAX; seen < pending;
		     counted += busy.fresh.ns) {
			seen = seen + 20 * MS < pending ? seen + fuzz_length(f, US, 20 * MS) : pending;
			work.pending_ns = seen;
			busy = vgpu_meter_pending(&device, &work);
			vgpu_meter_left(&device, &busy, busy.fresh.ns);
		}
		CHECK_IS(counted, surely);
		busy = vgpu_meter_finish(&device, &meter, &work);
		counted += busy.fresh.ns;
		CHECK(counted >= surely && counted <= work.reached_ns - start);
		CHECK(busy.start_ns == start && busy.end_ns <= work.reached_ns &&
		      busy.busy_ns <= work.reached_ns - start);
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

/* What one launch is counted for that was seen to be at work until pending and done at reached. */
static uint64_t counted_between_looks(uint64_t expected_us, uint64_t pending_us, uint64_t reached_us,
				      uint64_t held_us)
{
	const uint64_t start_us = 1000000;
	struct vgpu_meter_device device = {0};
	struct vgpu_meter meter = {0};
	struct vgpu_measured work = {.first_ns = start_us * 1000,
				     .last_ns = start_us * 1000,
				     .expected_ns = expected_us * 1000,
				     .pending_ns = (start_us + pending_us) * 1000 + VGPU_LAUNCH_NS,
				     .reached_ns = (start_us + reached_us) * 1000 + VGPU_LAUNCH_NS,
				     .held_until_ns =
					     held_us != 0 ? (start_us + held_us) * 1000 + VGPU_LAUNCH_NS : 0};
	struct vgpu_busy pending = vgpu_meter_pending(&device, &work), busy;

	vgpu_meter_left(&device, &pending, pending.fresh.ns);
	busy = vgpu_meter_finish(&device, &meter, &work);
	return (pending.fresh.ns + busy.fresh.ns) / 1000;
}

static void what_ends_between_two_looks_counts_to_the_middle(void)
{
	CHECK_IS(counted_between_looks(10, 800, 1200, 0), 1000);
	/* It is what was expected, nearly. */
	CHECK_IS(counted_between_looks(700, 800, 1200, 0), 800);
	CHECK_IS(counted_between_looks(1100, 800, 1200, 0), 1100);
	/* The look came late: that is not charged. */
	CHECK_IS(counted_between_looks(10, 800, 9000, 0), 800 + VGPU_LOOKS_NS / 2000);
	/* It lay behind something else. */
	CHECK_IS(counted_between_looks(10, 800, 1200, 300), 500);
}

/* Whatever clocks and claims say. */
static void nonsense_round(struct fuzz *f)
{
	struct vgpu_meter_device device = {0};

	for (int i = 0; i < STEPS; i++) {
		struct vgpu_meter meter = {fuzz_number(f) >> 2};
		struct vgpu_measured work = {.first_ns = fuzz_number(f) >> 2,
					     .last_ns = fuzz_number(f) >> 2,
					     .pending_ns = fuzz_number(f) >> 2,
					     .reached_ns = fuzz_number(f) >> 2,
					     .expected_ns = fuzz_number(f),
					     .held_until_ns = fuzz_number(f) >> 2,
					     .begun_ns = fuzz_below(f, 2) ? fuzz_number(f) >> 2 : 0};
		struct vgpu_busy busy;

		if (fuzz_below(f, 2)) {
			busy = vgpu_meter_pending(&device, &work);
			vgpu_meter_left(&device, &busy, fuzz_number(f));
			CHECK(busy.fresh.ns <= busy.busy_ns && busy.fresh.count <= VGPU_INTERVALS + 1);
		}
		busy = vgpu_meter_finish(&device, &meter, &work);
		CHECK(busy.fresh.ns <=
		      (work.reached_ns > busy.start_ns ? work.reached_ns - busy.start_ns : 0));
		CHECK(busy.fresh.count <= VGPU_INTERVALS + 1);
		if (fuzz_below(f, 2))
			vgpu_meter_rest(&device, fuzz_number(f));
	}
}

static void the_meter_takes_nonsense(void)
{
	fuzz_rounds(20, nonsense_round);
}

int main(void)
{
	CASE(garbage_in_pieces_is_bounded);
	CASE(processes_add_up_to_the_time_there_was);
	CASE(spans_are_what_was_counted);
	CASE(old_spans_run_together);
	CASE(what_is_counted_lies_within_what_is_possible);
	CASE(what_ends_between_two_looks_counts_to_the_middle);
	CASE(the_meter_takes_nonsense);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The account of GPU time where step and job have different shares, and single answers of the parts that it
 * is made of. time/meter.c tries these with anything, time/control_loop.c all together. */
#include "harness.h"
#include "whole.h"

#include "admission/credit.h"
#include "process/process.h"
#include "time/cost.h"
#include "time/meter.h"
#include "time/buckets.h"
#include "time/share.h"

#define US 1000ull
#define MS 1000000ull
#define STEP_PERCENT 20u
#define JOB_PERCENT 50u
#define WORK_NS (64 * VGPU_BUCKET_NS)

struct vgpu_pages vgpu_pages;
static struct vgpu_ledger ledger;
static struct vgpu_limits limits;
static union whole_process whole;
static struct vgpu_process *const process = &whole.process;
static uint64_t now;

static void begin(uint32_t step_percent, uint32_t job_percent)
{
	memset(&ledger, 0, sizeof(ledger));
	memset(&whole, 0, sizeof(whole));
	limits = (struct vgpu_limits){.device_count = 1};
	limits.device[0].sm_percent = step_percent;
	limits.device[0].job_sm_percent = job_percent;
	vgpu_pages = (struct vgpu_pages){.limits = &limits, .ledger = &ledger};
	process->step = 3;
	now = now_ns();
}

/* Busy time that a share has to give now, or owes. */
static void have(uint64_t *free_at_ns, uint32_t percent, int64_t busy_ns)
{
	*free_at_ns = (uint64_t)((int64_t)now - busy_ns * 100 / (int64_t)percent);
}

static void step_and_job_have(int64_t step_ns, int64_t job_ns)
{
	have(&ledger.step[3].share_free_at_ns[0], STEP_PERCENT, step_ns);
	have(&ledger.share_free_at_ns[0], JOB_PERCENT, job_ns);
}

static int64_t left_of(const uint64_t *free_at_ns, uint32_t percent)
{
	return ((int64_t)now - (int64_t)*free_at_ns) * (int64_t)percent / 100;
}

static void are_left(int64_t step_ns, int64_t job_ns)
{
	CHECK_IS(left_of(&ledger.step[3].share_free_at_ns[0], STEP_PERCENT), step_ns);
	CHECK_IS(left_of(&ledger.share_free_at_ns[0], JOB_PERCENT), job_ns);
}

static void what_is_taken_is_taken_of_step_and_job_alike(void)
{
	uint64_t from = 0;

	begin(STEP_PERCENT, JOB_PERCENT);
	step_and_job_have(8 * (int64_t)MS, 2 * (int64_t)MS);
	CHECK_IS(vgpu_time_take(process, 0, now, MS, 5 * MS, &from), 2 * MS);
	are_left(6 * (int64_t)MS, 0);

	step_and_job_have(2 * (int64_t)MS, 8 * (int64_t)MS);
	CHECK_IS(vgpu_time_take(process, 0, now, MS, 5 * MS, &from), 2 * MS);
	are_left(0, 6 * (int64_t)MS);

	/* What the job has nothing for, the step keeps. */
	step_and_job_have(8 * (int64_t)MS, -2 * (int64_t)MS);
	CHECK_IS(vgpu_time_take(process, 0, now, MS, 5 * MS, &from), 0);
	CHECK_IS(from, now + 4 * MS);
	are_left(8 * (int64_t)MS, -2 * (int64_t)MS);
	step_and_job_have(-2 * (int64_t)MS, 8 * (int64_t)MS);
	CHECK_IS(vgpu_time_take(process, 0, now, MS, 5 * MS, &from), 0);
	CHECK_IS(from, now + 10 * MS);
	are_left(-2 * (int64_t)MS, 8 * (int64_t)MS);
}

static void what_was_used_beyond_it_is_too(void)
{
	begin(STEP_PERCENT, JOB_PERCENT);
	step_and_job_have(8 * (int64_t)MS, 6 * (int64_t)MS);
	vgpu_time_settle(process, 0, now, 2 * (int64_t)MS);
	are_left(6 * (int64_t)MS, 4 * (int64_t)MS);
	vgpu_time_settle(process, 0, now, -(int64_t)MS);
	are_left(7 * (int64_t)MS, 5 * (int64_t)MS);
	vgpu_time_settle_step(process, 0, now, 3 * MS);
	are_left(4 * (int64_t)MS, 5 * (int64_t)MS);
	/* A step with the job's share has none of its own. */
	begin(JOB_PERCENT, JOB_PERCENT);
	step_and_job_have(8 * (int64_t)MS, 6 * (int64_t)MS);
	vgpu_time_settle_step(process, 0, now, 3 * MS);
	are_left(8 * (int64_t)MS, 6 * (int64_t)MS);
	vgpu_time_settle(process, 0, now, 3 * (int64_t)MS);
	are_left(8 * (int64_t)MS, 3 * (int64_t)MS);
}

static void credit_is_that_of_whichever_has_less(void)
{
	begin(STEP_PERCENT, JOB_PERCENT);
	step_and_job_have(8 * (int64_t)MS, 2 * (int64_t)MS);
	CHECK_IS(vgpu_time_credit(process, 0, now), 2 * MS);
	CHECK_IS(vgpu_time_credit_age(process, 0, now), 4 * MS);
	step_and_job_have(2 * (int64_t)MS, 8 * (int64_t)MS);
	CHECK_IS(vgpu_time_credit(process, 0, now), 2 * MS);
	CHECK_IS(vgpu_time_credit_age(process, 0, now), 10 * MS);
	step_and_job_have(-(int64_t)MS, 8 * (int64_t)MS);
	CHECK(vgpu_time_credit(process, 0, now) == -(int64_t)MS);
	CHECK_IS(vgpu_time_credit_age(process, 0, now), 0);
	/* And earning takes as long as it takes the slower of both. */
	CHECK_IS(vgpu_time_to_earn(process, 0, MS), 5 * MS);
	begin(0, 0);
	CHECK(vgpu_time_credit(process, 0, now) == INT64_MAX);
	CHECK_IS(vgpu_time_to_earn(process, 0, MS), 0);
}

static void a_share_of_either_is_a_cap(void)
{
	const struct {
		uint32_t step, job;
		bool capped;
	} cases[] = {{0, 0, false}, {100, 100, false}, {20, 0, true},
		     {0, 50, true}, {1, 100, true},    {100, 99, true}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin(cases[i].step, cases[i].job);
		CHECK_IS(vgpu_time_is_capped(0), cases[i].capped);
	}
}

static struct vgpu_busy busy_between(uint64_t from, uint64_t to, uint64_t ns)
{
	struct vgpu_busy busy = {.start_ns = from, .end_ns = to, .busy_ns = ns};

	busy.fresh.interval[0] = (struct vgpu_interval){from, to};
	busy.fresh.count = 1;
	busy.fresh.ns = ns;
	return busy;
}

/* Of the time in which this process was seen at work another one has counted all: then this one was at work
 * beside it. */
static void what_another_process_has_counted_was_at_another_time(void)
{
	struct vgpu_busy busy;
	uint64_t at;

	begin(STEP_PERCENT, JOB_PERCENT);
	at = (now - 100 * MS) / VGPU_BUCKET_NS * VGPU_BUCKET_NS;
	busy = busy_between(at, at + WORK_NS, WORK_NS);
	CHECK_IS(vgpu_time_used(process, 0, &busy), WORK_NS);
	CHECK_IS(ledger.busy_ns[0], WORK_NS);
	CHECK_IS(ledger.busy_until_ns[0], at + WORK_NS);
	/* The same once more is not known to have been at another time. */
	CHECK_IS(vgpu_time_used(process, 0, &busy), 0);
	busy.start_ns = at - WORK_NS;
	busy.until_ns = at + WORK_NS;
	CHECK_IS(vgpu_time_used(process, 0, &busy), WORK_NS);
	CHECK_IS(ledger.busy_ns[0], 2 * WORK_NS);
	CHECK_IS(ledger.step[3].busy_ns[0], 2 * WORK_NS);
	/* No more than there was. */
	CHECK_IS(vgpu_time_used(process, 0, &busy), 0);
	CHECK_IS(ledger.busy_ns[0], 2 * WORK_NS);
}

static void waiting_is_counted_for_step_and_job(void)
{
	begin(STEP_PERCENT, JOB_PERCENT);
	vgpu_time_waited(process, 0, 3 * MS);
	vgpu_time_waited(process, 0, MS);
	CHECK_IS(ledger.waited_ns[0], 4 * MS);
	CHECK_IS(ledger.step[3].waited_ns[0], 4 * MS);
}

/* ---- the meter ---- */

static struct vgpu_meter_device device;
static struct vgpu_meter meter;

#define AT (1000 * MS)

static struct vgpu_busy finish(uint64_t last, uint64_t expected, uint64_t took, uint64_t pending,
			       uint64_t reached)
{
	struct vgpu_measured work = {.first_ns = AT,
				     .last_ns = last,
				     .expected_ns = expected,
				     .took_ns = took,
				     .pending_ns = pending,
				     .reached_ns = reached};

	return vgpu_meter_finish(&device, &meter, &work);
}

static void meter_anew(void)
{
	memset(&device, 0, sizeof(device));
	memset(&meter, 0, sizeof(meter));
}

static void nothing_takes_longer_than_was_seen(void)
{
	struct vgpu_busy busy;

	meter_anew();
	busy = finish(AT, 2 * MS, 10 * MS, 0, AT + 4 * MS);
	CHECK_IS(busy.busy_ns, 4 * MS - VGPU_LAUNCH_NS);
	CHECK_IS(busy.fresh.ns, 4 * MS - VGPU_LAUNCH_NS);
	CHECK_IS(busy.end_ns, AT + 4 * MS);
	CHECK_IS(meter.done_ns, AT + 4 * MS);
	/* And what took less is not more. */
	meter_anew();
	busy = finish(AT, 2 * MS, 3 * MS, 0, AT + 4 * MS);
	CHECK_IS(busy.busy_ns, 3 * MS);
	CHECK_IS(meter.done_ns, AT + VGPU_LAUNCH_NS + 3 * MS);
}

/* The last launch returned when the marker behind it was all but reached. */
static void nothing_ends_after_it_was_seen_to_be_done(void)
{
	struct vgpu_busy busy;

	meter_anew();
	busy = finish(AT + 4 * MS - VGPU_LAUNCH_NS / 2, MS, 0, 0, AT + 4 * MS);
	CHECK_IS(busy.end_ns, AT + 4 * MS);
	CHECK_IS(meter.done_ns, AT + 4 * MS);
	CHECK_IS(busy.fresh.ns, MS);
}

/* Kernels that are seen to run one after the other are believed twice as fast as those that run at once. */
static void how_streams_run_is_learnt(void)
{
	meter_anew();
	device.together = 2 * VGPU_TOGETHER;
	finish(AT, 2 * MS, 0, AT + 10 * MS, AT + 10 * MS + US);
	CHECK_IS(device.together, 2 * VGPU_TOGETHER - 2);
	for (int left = 2 * VGPU_TOGETHER - 4; left >= 0; left -= 2) {
		memset(&meter, 0, sizeof(meter));
		finish(AT, 2 * MS, 0, AT + 10 * MS, AT + 10 * MS + US);
		CHECK_IS(device.together, (uint32_t)left);
	}
	device.together = 1;
	memset(&meter, 0, sizeof(meter));
	finish(AT, 2 * MS, 0, AT + 10 * MS, AT + 10 * MS + US);
	CHECK_IS(device.together, 0);
	/* All of the time has been counted for other streams: so they were at work at once. */
	for (uint32_t i = 1; i < 3 * VGPU_TOGETHER; i++) {
		struct vgpu_fresh fresh;

		memset(&meter, 0, sizeof(meter));
		vgpu_intervals_count(&device.intervals, AT, AT + 10 * MS, UINT64_MAX, &fresh);
		finish(AT, 8 * MS, 0, AT + MS, AT + 10 * MS);
		CHECK_IS(device.together, i < 2 * VGPU_TOGETHER ? i : 2 * VGPU_TOGETHER);
	}
}

/* ---- what launches took before ---- */

static void a_place_has_nothing_of_who_had_it_before(void)
{
	static struct vgpu_cost table[VGPU_COSTS];

	for (uint64_t i = 1; i <= 3 * VGPU_COSTS; i++) {
		uint64_t key = vgpu_cost_key(i, 7);
		struct vgpu_cost *cost = vgpu_cost_of(table, key);
		struct vgpu_cost fresh = {.key = key};

		CHECK(memcmp(cost, &fresh, sizeof(fresh)) == 0);
		if (failures != 0)
			return;
		*cost = (struct vgpu_cost){.key = key,
					   .average_ns = 5000,
					   .samples = (uint16_t)(1 + i % 50),
					   .outliers = 1,
					   .since_sample = 9,
					   .put_off = 4,
					   .brief_ns = 3000};
		CHECK(vgpu_cost_of(table, key) == cost);
		CHECK_IS(cost->average_ns, 5000);
	}
}

static void a_guess_stands_until_there_is_a_measurement(void)
{
	static struct vgpu_cost table[VGPU_COSTS];
	uint64_t key = vgpu_cost_key(5, 5);
	struct vgpu_cost *cost = vgpu_cost_of(table, key);

	vgpu_cost_guess(table, key, 900 * US);
	CHECK_IS(cost->average_ns, 900 * US);
	vgpu_cost_guess(table, key, 0);
	CHECK_IS(cost->average_ns, 1);
	vgpu_cost_guess(table, key, 10000 * MS);
	CHECK_IS(cost->average_ns, 4000 * MS);
	vgpu_cost_learn(table, key, 100 * US);
	CHECK_IS(cost->average_ns, 100 * US);
	vgpu_cost_guess(table, key, 900 * US);
	CHECK_IS(cost->average_ns, 100 * US);
	CHECK_IS(cost->samples, 1);
}

int main(void)
{
	gpus(0);
	CASE(what_is_taken_is_taken_of_step_and_job_alike);
	CASE(what_was_used_beyond_it_is_too);
	CASE(credit_is_that_of_whichever_has_less);
	CASE(a_share_of_either_is_a_cap);
	CASE(what_another_process_has_counted_was_at_another_time);
	CASE(waiting_is_counted_for_step_and_job);
	CASE(nothing_takes_longer_than_was_seen);
	CASE(nothing_ends_after_it_was_seen_to_be_done);
	CASE(how_streams_run_is_learnt);
	CASE(a_place_has_nothing_of_who_had_it_before);
	CASE(a_guess_stands_until_there_is_a_measurement);
	return summary();
}

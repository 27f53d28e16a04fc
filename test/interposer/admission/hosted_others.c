/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The virtual host with others on its GPU: slices of other jobs, processes of this one, and another GPU. */
#include "hosted.h"

#include "admission/credit.h"
#include "admission/cosched.h"
#include "admission/queue.h"
#include "admission/turns.h"

/* ---- processes of the job ---- */

static struct vgpu_ledger_slot *another_process(void)
{
	virtual_ledger.slots_high = 2;
	virtual_ledger.slot[1].state = 1;
	return &virtual_ledger.slot[1];
}

static void others_of_the_job_are_busy_as_long_as_they_say(void)
{
	struct vgpu_ledger_slot *other;
	uint64_t now;

	virtual_host_begin(50, 50);
	now = virtual_host_now();
	other = another_process();
	CHECK(!vgpu_turns_siblings_busy(&virtual_process, 0, now));
	other->inflight_until_ns[0] = now + MS;
	CHECK(vgpu_turns_siblings_busy(&virtual_process, 0, now));
	CHECK(!vgpu_turns_siblings_busy(&virtual_process, 1, now));
	CHECK(!vgpu_turns_siblings_busy(&virtual_process, 0, now + MS));
	other->state = 0;
	CHECK(!vgpu_turns_siblings_busy(&virtual_process, 0, now));
	virtual_ledger.slot[0].inflight_until_ns[0] = now + MS;
	CHECK(!vgpu_turns_siblings_busy(&virtual_process, 0, now));
}

static void a_process_says_as_long_as_it_is_busy(void)
{
	virtual_host_begin(50, 50);
	know(KERNEL, 100 * US);
	virtual_host_launch(1, KERNEL, 5 * MS);
	virtual_host_works(2 * MS);
	CHECK_WITHIN(virtual_ledger.slot[0].inflight_until_ns[0], virtual_host_now() + MS,
		     virtual_host_now() + 3 * MS);
	virtual_host_waits(1);
	virtual_host_works(10 * MS);
	CHECK_IS(virtual_ledger.slot[0].inflight_until_ns[0], 0);
}

/* The ledger is the job's own to write. */
static void there_are_no_more_processes_than_places(void)
{
	uint64_t now;

	virtual_host_begin(50, 50);
	now = virtual_host_now();
	virtual_ledger.slot[5].state = 1;
	virtual_ledger.slot[5].inflight_until_ns[0] = now + MS;
	virtual_ledger.slots_high = 5;
	CHECK(!vgpu_turns_siblings_busy(&virtual_process, 0, now));
	virtual_ledger.slots_high = 6;
	CHECK(vgpu_turns_siblings_busy(&virtual_process, 0, now));
	virtual_ledger.slot[5].state = 0;
	virtual_ledger.slots_high = UINT32_MAX;
	CHECK(!vgpu_turns_siblings_busy(&virtual_process, 0, now));
	CHECK_IS(vgpu_queue_wait(&virtual_process, 0, now, now + MS, now), now + MS);
}

static void a_process_keeps_its_place_until_its_round_is_over(void)
{
	const struct vgpu_ledger_slot *own = &virtual_ledger.slot[0];
	struct vgpu_ledger_slot *other;
	uint64_t now, since;

	virtual_host_begin(50, 50);
	now = virtual_host_now();
	since = now - 3 * MS;
	other = another_process();
	other->waits_since_ns = now - 2 * MS;
	other->waits_until_ns = now + 2 * MS;
	CHECK_IS(vgpu_queue_wait(&virtual_process, 0, since, now + MS, now), now + MS);
	CHECK_IS(own->waits_since_ns, since);
	CHECK_IS(own->waits_until_ns, now + 5 * MS);
	CHECK_IS(ENGINE->load.round_left_ns, 8 * MS);
	vgpu_queue_leave(&virtual_process, 0, since, 3 * MS);
	CHECK_IS(own->waits_until_ns, 0);
	CHECK_IS(ENGINE->load.round_left_ns, 5 * MS);
	/* Back after the other one came, and first all the same. */
	CHECK_IS(vgpu_queue_wait(&virtual_process, 0, now, now + MS, now), now + MS);
	CHECK_IS(own->waits_since_ns, since);
	vgpu_queue_leave(&virtual_process, 0, now, 5 * MS);
	CHECK_IS(ENGINE->load.round_left_ns, 0);
	/* It is over: the other one has waited for longer. */
	CHECK_IS(vgpu_queue_wait(&virtual_process, 0, now, now + MS, now), now + 3 * MS);
	CHECK_IS(own->waits_since_ns, now);
}

/* ---- GPUs of the job ---- */

static void a_gpu_waits_for_one_that_owes_time_while_they_work_together(void)
{
	uint64_t now;

	virtual_host_begin(50, 50);
	now = virtual_host_now();
	virtual_limits.device_count = 2;
	virtual_limits.device[1] = virtual_limits.device[0];
	virtual_ledger.share_free_at_ns[1] = now + 10 * MS;
	CHECK(!vgpu_cosched_holds(&virtual_process, 0));
	vgpu_cosched_seen(now);
	CHECK_IS(virtual_ledger.late_ns, now);
	CHECK(vgpu_cosched_holds(&virtual_process, 0));
	CHECK(!vgpu_cosched_holds(&virtual_process, 1));
	/* What is at work there may be waiting for this one. */
	vgpu_load(&virtual_process, 1)->in_flight = 1;
	CHECK(!vgpu_cosched_holds(&virtual_process, 0));
	vgpu_load(&virtual_process, 1)->in_flight = 0;
	virtual_ledger.late_ns = now - 2000 * MS;
	CHECK(!vgpu_cosched_holds(&virtual_process, 0));
	virtual_ledger.late_ns = now - 1999 * MS;
	CHECK(vgpu_cosched_holds(&virtual_process, 0));
	virtual_ledger.late_ns = now + 10 * MS;
	CHECK(!vgpu_cosched_holds(&virtual_process, 0));
	virtual_ledger.late_ns = now;
	virtual_ledger.share_free_at_ns[1] = now + MS / 2;
	CHECK(!vgpu_cosched_holds(&virtual_process, 0));
}

/* ---- slices of other jobs ---- */

static void turn_ends(void)
{
	struct vgpu_claim *claim = &virtual_slice[0].claim;

	claim->holds_since_ns = 0;
	claim->drained_ns = virtual_host_now();
	claim->bell++;
}

static void beside_a_slice_that_holds_its_turn(void)
{
	virtual_host_begin(50, 50);
	virtual_slices_begin(1, (const uint32_t[]){50});
	know(KERNEL, 100 * US);
	virtual_slice[0].claim.holds_since_ns = virtual_host_now();
	virtual_slice[0].claim.bell = 7;
	virtual_host_works(5 * MS);
}

static void a_turn_begins_when_the_one_before_it_ends(void)
{
	for (uint64_t more_us = 0; more_us < 400; more_us += 37) {
		uint64_t ends_ns;

		beside_a_slice_that_holds_its_turn();
		ends_ns = virtual_host_now() + 5 * MS + more_us * US;
		virtual_host_at(ends_ns, turn_ends);
		virtual_host_launch(1, KERNEL, 100 * US);
		virtual_host_waits(1);
		CHECK_WITHIN(virtual_host_now() - ends_ns, 100 * US, 170 * US);
	}
}

static void who_waits_for_a_turn_does_not_look_all_the_time(void)
{
	uint32_t slept;

	beside_a_slice_that_holds_its_turn();
	virtual_host_launch(1, KERNEL, 100 * US);
	slept = virtual_asked.poller_sleeps;
	virtual_host_works(10 * MS);
	CHECK_WITHIN(virtual_asked.poller_sleeps - slept, 30, 70);
}

static void a_slice_that_is_at_work_says_so(void)
{
	virtual_host_begin(50, 50);
	virtual_slices_begin(1, (const uint32_t[]){50});
	know(KERNEL, 100 * US);
	for (int i = 0; i < 20; i++)
		virtual_host_launch(1, KERNEL, 100 * US);
	virtual_host_works(MS);
	CHECK_WITHIN(virtual_host_now() - virtual_claim.holds_since_ns, 1, 2 * MS);
	CHECK_IS(virtual_claim.wants_since_ns, 0);
	CHECK(virtual_claim.until_ns > virtual_host_now());
	virtual_host_waits(1);
	virtual_host_works(20 * MS);
	CHECK_IS(virtual_claim.holds_since_ns, 0);
	CHECK_IS(virtual_claim.wants_since_ns, 0);
}

/* A slice that always has something to do, for 10 ms in each of its turns. */
static uint64_t in_its_turns_ns, turn_busy_ns;
static uint32_t its_turns;

static void takes_turns(struct virtual_slice *slice, uint64_t now_ns)
{
	struct vgpu_claim *claim = &slice->claim;

	if (claim->holds_since_ns != 0 && now_ns - claim->holds_since_ns >= 10 * MS) {
		in_its_turns_ns += virtual_host_busy_ns(0, HOST_MS) - turn_busy_ns;
		claim->holds_since_ns = 0;
		claim->wants_since_ns = claim->drained_ns = now_ns;
		claim->bell++;
	} else if (claim->holds_since_ns == 0 && virtual_claim.holds_since_ns == 0 &&
		   (virtual_claim.wants_since_ns == 0 ||
		    claim->wants_since_ns < virtual_claim.wants_since_ns)) {
		turn_busy_ns = virtual_host_busy_ns(0, HOST_MS);
		claim->holds_since_ns = now_ns;
		claim->wants_since_ns = 0;
		its_turns++;
	} else if (claim->holds_since_ns == 0 && claim->wants_since_ns == 0) {
		claim->wants_since_ns = now_ns;
	}
}

static void beside_a_slice_that_takes_turns(void)
{
	virtual_host_begin(50, 50);
	virtual_slices_begin(1, (const uint32_t[]){50});
	know(KERNEL, 100 * US);
	know(KERNEL + 1, MS);
	virtual_slice[0].says = takes_turns;
	in_its_turns_ns = its_turns = 0;
}

static void nothing_is_at_work_in_a_turn_of_others(void)
{
	uint64_t until_ns, before_ns;

	beside_a_slice_that_takes_turns();
	before_ns = virtual_host_busy_ns(0, HOST_MS);
	until_ns = virtual_host_now() + 2000 * MS;
	while (virtual_host_now() < until_ns)
		virtual_host_launch(1, KERNEL, 100 * US);
	CHECK_WITHIN(its_turns, 40, 120);
	CHECK_WITHIN(in_its_turns_ns, 0, 5 * MS);
	CHECK_WITHIN(virtual_host_busy_ns(0, HOST_MS) - before_ns, 900 * MS, 1020 * MS);
}

static void a_slice_is_interactive_as_long_as_it_waits_for_its_results(void)
{
	uint64_t until_ns;

	beside_a_slice_that_takes_turns();
	until_ns = virtual_host_now() + 800 * MS;
	while (virtual_host_now() < until_ns) {
		for (int i = 0; i < 3; i++)
			virtual_host_launch(1, KERNEL + 1, MS);
		virtual_host_waits(1);
	}
	CHECK_WITHIN(virtual_claim.interactive_us, 2000, 4500);
	until_ns = virtual_host_now() + 800 * MS;
	while (virtual_host_now() < until_ns)
		virtual_host_launch(1, KERNEL + 1, MS);
	CHECK_IS(virtual_claim.interactive_us, 0);
}

static void holds_for_ever(struct virtual_slice *slice, uint64_t now_ns)
{
	slice->claim.holds_since_ns = now_ns - MS;
}

static uint64_t busy_for_a_second(void)
{
	uint64_t before_ns = virtual_host_busy_ns(0, HOST_MS), until_ns = virtual_host_now() + 1000 * MS;

	while (virtual_host_now() < until_ns)
		virtual_host_launch(1, KERNEL, 100 * US);
	return virtual_host_busy_ns(0, HOST_MS) - before_ns;
}

/* With a neighbour of 30 it is waited for 35 points of the time. */
static void who_holds_its_turn_for_ever_costs_its_share(void)
{
	virtual_host_begin(60, 60);
	virtual_slices_begin(1, (const uint32_t[]){30});
	know(KERNEL, 100 * US);
	virtual_slice[0].says = holds_for_ever;
	busy_for_a_second();
	CHECK_WITHIN(busy_for_a_second(), 480 * MS, 610 * MS);
}

static void what_nobody_wants_is_for_elastic_slices(void)
{
	for (int elastic = 0; elastic < 2; elastic++) {
		virtual_host_begin(50, 50);
		virtual_limits.flags = elastic ? VGPU_ELASTIC : 0;
		virtual_slices_begin(1, (const uint32_t[]){50});
		know(KERNEL, 100 * US);
		busy_for_a_second();
		CHECK_WITHIN(busy_for_a_second(), elastic ? 950 * MS : 480 * MS,
			     elastic ? 1001 * MS : 520 * MS);
		/* Until somebody wants it. */
		virtual_slice[0].says = takes_turns;
		busy_for_a_second();
		CHECK_WITHIN(busy_for_a_second(), 440 * MS, 800 * MS);
	}
}

int main(void)
{
	gpus(0);
	CASE(others_of_the_job_are_busy_as_long_as_they_say);
	CASE(a_process_says_as_long_as_it_is_busy);
	CASE(there_are_no_more_processes_than_places);
	CASE(a_process_keeps_its_place_until_its_round_is_over);
	CASE(a_gpu_waits_for_one_that_owes_time_while_they_work_together);
	CASE(a_turn_begins_when_the_one_before_it_ends);
	CASE(who_waits_for_a_turn_does_not_look_all_the_time);
	CASE(a_slice_that_is_at_work_says_so);
	CASE(nothing_is_at_work_in_a_turn_of_others);
	CASE(a_slice_is_interactive_as_long_as_it_waits_for_its_results);
	CASE(who_holds_its_turn_for_ever_costs_its_share);
	CASE(what_nobody_wants_is_for_elastic_slices);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Single launches on the virtual host: what is expected of them, who waits and who need not, and what is left
 * when their stream or context is gone. */
#include "hosted.h"

#include "admission/admission.h"
#include "admission/credit.h"
#include "driver/capture.h"
#include "gate/batch.h"
#include "gate/poller.h"
#include "streams/groups.h"
#include "streams/sample.h"

/* ---- what is expected ---- */

static void what_a_launch_takes_less_behind_another_one_is_learnt_of_those_that_run_alone(void)
{
	virtual_host_begin(30, 30);
	CHECK(vgpu_cost_saved_ns(ENGINE->saved) > 200);
	run(1000, 10 * US, 1, 0);
	/* On this GPU they take as long. */
	CHECK(ENGINE->saved != 0);
	CHECK_WITHIN(vgpu_cost_saved_ns(ENGINE->saved), 0, 100);
}

static void only_what_lies_behind_others_takes_less_than_alone(void)
{
	const uint64_t brief = SHAPED(KERNEL, 1);
	const struct vgpu_group *group;
	struct vgpu_stream *stream;
	uint64_t took;

	virtual_host_begin(90, 90);
	know(KERNEL, 20 * US);
	know(brief, 300);
	stream = stream_of(1);
	took = expected_of(KERNEL);
	/* Something else comes first, so that no lease and no group from before is there. */
	virtual_host_copy(1, 2 * MS);
	somebody_has_waited();
	virtual_host_launch(1, KERNEL, 20 * US);
	virtual_host_launch(1, KERNEL, 20 * US);
	group = vgpu_groups_at(stream, stream->head - stream->tail - 1);
	CHECK_IS(group->launches, 2);
	CHECK_IS(group->expected_ns, 2 * took - vgpu_cost_saved_ns(ENGINE->saved));
	virtual_host_waits(1);
	virtual_host_works(20 * MS);
	/* Too brief for that. */
	virtual_host_copy(1, 2 * MS);
	somebody_has_waited();
	virtual_host_launch(1, KERNEL, 20 * US);
	virtual_host_launch(1, brief, 300);
	group = vgpu_groups_at(stream, stream->head - stream->tail - 1);
	CHECK_IS(group->expected_ns, took + expected_of(brief));
}

static void what_was_learnt_while_a_launch_waited_is_known_of_it(void)
{
	virtual_host_begin(50, 50);
	virtual_host_launch(1, KERNEL, 30 * MS);
	CHECK_IS(ENGINE->load.unknown, 1);
	virtual_host_launch(1, KERNEL, 30 * MS);
	CHECK_IS(ENGINE->load.unknown, 0);
	CHECK_WITHIN(vgpu_groups_oldest(stream_of(1))->expected_ns, 29 * MS, 31 * MS);
}

static void a_shape_that_is_new_is_expected_to_take_what_others_of_the_kernel_did(void)
{
	virtual_host_begin(50, 50);
	know(KERNEL, 100 * US);
	virtual_host_launch(1, SHAPED(KERNEL, 9), 100 * US);
	CHECK_IS(ENGINE->load.unknown, 0);
	CHECK_WITHIN(ENGINE->load.expected_ns, 99 * US, 105 * US);
	virtual_host_launch(1, KERNEL + 1, 100 * US);
	CHECK_IS(ENGINE->load.unknown, 1);
}

static void what_is_under_way_is_not_done(void)
{
	virtual_host_begin(50, 50);
	know(KERNEL, 100 * US);
	virtual_host_launch(1, KERNEL, 5 * MS);
	virtual_host_works(50 * US);
	CHECK(!vgpu_groups_drained(ENGINE, stream_of(1), virtual_host_stream(1)));
	virtual_host_waits(1);
	CHECK(vgpu_groups_drained(ENGINE, stream_of(1), virtual_host_stream(1)));
}

/* ---- who need not wait ---- */

/* Beside a stream that is at work for so long, without credit. */
static bool rides_along(uint64_t beside_ns)
{
	uint64_t held;

	virtual_host_begin(50, 50);
	know(KERNEL, 400 * US);
	know(KERNEL + 1, beside_ns);
	virtual_host_launch(2, KERNEL, 400 * US);
	virtual_host_waits(2);
	virtual_host_works(30 * MS);
	virtual_ledger.share_free_at_ns[0] = virtual_host_now() - 100;
	virtual_host_launch(1, KERNEL + 1, beside_ns);
	held = ENGINE->load.batch_next;
	virtual_host_launch(2, KERNEL, 400 * US);
	return ENGINE->load.batch_next == held;
}

static void a_launch_beside_what_keeps_the_gpu_busy_for_about_as_long_rides_along(void)
{
	CHECK(rides_along(390 * US));
	CHECK(rides_along(330 * US));
	CHECK(!rides_along(250 * US));
}

static struct vgpu_waiting waiting;

static enum vgpu_admission tries(uint64_t *wait_ns)
{
	return vgpu_admission_try(&virtual_process, 0, MS, 100 * MS, &waiting, wait_ns);
}

/* Nobody else is on the GPU, and there is no credit. */
static int64_t owes(void)
{
	ENGINE->load.turns.may_until_ns = UINT64_MAX;
	ENGINE->load.credit_ns = 0;
	virtual_ledger.share_free_at_ns[0] = virtual_host_now() + 40 * MS;
	return vgpu_time_credit(&virtual_process, 0, virtual_host_now());
}

static void what_stalls_is_let_pass_when_it_is_overdue_and_charged(void)
{
	int64_t had;
	uint64_t wait;

	virtual_host_begin(50, 50);
	had = owes();
	waiting.stalled_ns = virtual_host_now() - 100 * MS;
	CHECK_IS(tries(&wait), VGPU_NO_CREDIT);
	CHECK_IS(waiting.stalled_ns, 0);
	ENGINE->load.stalled_ns = virtual_host_now();
	CHECK_IS(tries(&wait), VGPU_STALLED);
	CHECK_WITHIN(virtual_host_now() - waiting.stalled_ns, 0, 200);
	waiting.stalled_ns = virtual_host_now() - 99 * MS;
	CHECK_IS(tries(&wait), VGPU_STALLED);
	CHECK_WITHIN(wait, MS - 200, MS);
	CHECK_WITHIN(vgpu_time_credit(&virtual_process, 0, virtual_host_now()) - had, 0, 200);
	waiting.stalled_ns = virtual_host_now() - 100 * MS;
	CHECK_IS(tries(&wait), VGPU_ADMITTED);
	CHECK_WITHIN(had - vgpu_time_credit(&virtual_process, 0, virtual_host_now()), MS - 200, MS);
	CHECK_IS(waiting.stalled_ns, 0);
	ENGINE->load.stalled_ns = 0;
	ENGINE->load.unknown = 1;
	waiting.stalled_ns = virtual_host_now() - 100 * MS;
	CHECK_IS(tries(&wait), VGPU_ADMITTED);
}

static void who_waits_for_credit_is_in_the_queue_until_it_is_admitted_or_goes(void)
{
	const struct vgpu_ledger_slot *own = &virtual_ledger.slot[0];
	uint64_t now, wait;

	virtual_host_begin(50, 50);
	owes();
	CHECK_IS(tries(&wait), VGPU_NO_CREDIT);
	CHECK_IS(own->waits_until_ns, 0);
	now = virtual_host_now();
	CHECK_IS(vgpu_admission_queue(&virtual_process, 0, &waiting, wait, now), now + wait);
	CHECK_IS(vgpu_admission_queue(&virtual_process, 0, &waiting, MS, now + MS), now + 2 * MS);
	/* Since it first had none. */
	CHECK_IS(own->waits_since_ns, now);
	CHECK_IS(waiting.credit_ns, now);
	CHECK(own->waits_until_ns > now);
	vgpu_admission_leave(&virtual_process, 0, &waiting);
	CHECK_IS(own->waits_until_ns, 0);
	CHECK_IS(waiting.credit_ns, 0);
	vgpu_admission_queue(&virtual_process, 0, &waiting, MS, now);
	ENGINE->load.round_left_ns = 5 * MS;
	virtual_ledger.share_free_at_ns[0] = virtual_host_now() - 10 * MS;
	CHECK_IS(tries(&wait), VGPU_ADMITTED);
	CHECK_IS(own->waits_until_ns, 0);
	CHECK_IS(waiting.credit_ns, 0);
	CHECK_IS(ENGINE->load.round_left_ns, 4 * MS);
}

/* ---- a context that is gone ---- */

static void what_was_timed_in_a_context_that_is_gone_is_forgotten(void)
{
	virtual_host_begin(90, 90);
	know(KERNEL, 20 * US);
	virtual_host_copy(1, 5 * MS);
	for (int i = 0; i < 8 && ENGINE->samples_taken == 0; i++)
		virtual_host_launch(1, KERNEL + 1, 20 * US);
	CHECK(ENGINE->samples_taken != 0);
	vgpu_samples_context_gone(ENGINE, CONTEXT);
	CHECK_IS(ENGINE->samples_taken, 0);
	for (int i = 0; i < VGPU_SAMPLES; i++)
		CHECK_IS(ENGINE->sample[i].state, 0);
}

static void the_events_of_a_stream_that_is_gone_go_with_it(void)
{
	virtual_host_begin(30, 30);
	run(300, 100 * US, 1, 0);
	virtual_host_waits(1);
	virtual_host_works(100 * MS);
	vgpu_samples_context_gone(ENGINE, NULL);
	vgpu_streams_gone(&virtual_process, virtual_host_stream(1));
	/* Three of each sample stay. */
	CHECK_WITHIN(virtual_asked.events_made - virtual_asked.events_gone, 0, 3 * VGPU_SAMPLES);
	CHECK(virtual_asked.events_gone > 100);
}

static void what_is_in_flight_in_a_context_that_is_gone_is_no_more(void)
{
	struct vgpu_stream *stream;

	virtual_host_begin(50, 50);
	know(KERNEL, 100 * US);
	virtual_host_launch(1, KERNEL, 100 * US);
	virtual_host_launch(2, KERNEL, 100 * US);
	stream = stream_of(1);
	CHECK(ENGINE->load.in_flight != 0 && ENGINE->load.expected_ns != 0);
	vgpu_streams(&virtual_process)->poller_context = CONTEXT;
	vgpu_streams_context_gone(&virtual_process, (CUcontext)(uintptr_t)0x200);
	CHECK_IS(stream->state, VGPU_STREAM_LIVE);
	vgpu_streams_context_gone(&virtual_process, CONTEXT);
	CHECK_IS(stream->state, VGPU_STREAM_UNUSED);
	CHECK_IS(ENGINE->load.in_flight, 0);
	CHECK_IS(ENGINE->load.expected_ns, 0);
	CHECK_IS(ENGINE->load.loose, 0);
	CHECK(vgpu_streams(&virtual_process)->poller_context == NULL);
	/* Its events end with it. */
	CHECK_IS(virtual_asked.events_gone, 0);
}

/* ---- timing ---- */

/* A stream that waits for a call to be timed does not for longer than a millisecond, and what that then took
 * is not believed. */
static void a_call_that_takes_long_is_not_timed(void)
{
	uint64_t before_ns;

	virtual_host_begin(90, 90);
	know(KERNEL, 20 * US);
	virtual_host_call_ns = 5 * MS;
	for (int i = 0; i < 200; i++) {
		before_ns = virtual_host_busy_ns(0, HOST_MS);
		virtual_host_launch(1, KERNEL, 20 * US);
		virtual_host_waits(1);
		CHECK_IS(virtual_host_busy_ns(0, HOST_MS), before_ns + 20 * US);
	}
	CHECK_WITHIN(expected_of(KERNEL), 20 * US, 21 * US);
	CHECK_WITHIN(virtual_ledger.busy_ns[0], 4 * MS, 7 * MS);
}

/* ---- one at a time, others wait ---- */

static void another_thread_has_started_it(void)
{
	vgpu_gate(&virtual_process)->poller = VGPU_POLLER_STARTED;
}

static void another_thread_has_failed_to(void)
{
	vgpu_gate(&virtual_process)->poller = VGPU_POLLER_NONE;
}

static void who_finds_the_keeper_being_started_waits_for_it(void)
{
	virtual_host_begin(50, 50);
	vgpu_gate(&virtual_process)->poller = VGPU_POLLER_STARTING;
	virtual_host_at(HOST_BEGIN + MS, another_thread_has_started_it);
	CHECK(vgpu_poller_starts(&virtual_process));
	CHECK_WITHIN(virtual_host_now(), HOST_BEGIN + MS, HOST_BEGIN + 2 * MS);
	vgpu_gate(&virtual_process)->poller = VGPU_POLLER_STARTING;
	virtual_host_at(HOST_BEGIN + 3 * MS, another_thread_has_failed_to);
	CHECK(!vgpu_poller_starts(&virtual_process));
	CHECK_WITHIN(virtual_host_now(), HOST_BEGIN + 3 * MS, HOST_BEGIN + 4 * MS);
}

static void a_capture_ends_once(void)
{
	virtual_host_begin(50, 50);
	vgpu_capture_begins(&virtual_process);
	vgpu_capture_begins(&virtual_process);
	vgpu_capture_ended(&virtual_process);
	CHECK_IS(virtual_process.captures, 1);
	CHECK(vgpu_capture_possible(&virtual_process));
	vgpu_capture_ended(&virtual_process);
	vgpu_capture_ended(&virtual_process);
	CHECK_IS(virtual_process.captures, 0);
	CHECK(!vgpu_capture_possible(&virtual_process));
}

int main(void)
{
	gpus(0);
	CASE(what_a_launch_takes_less_behind_another_one_is_learnt_of_those_that_run_alone);
	CASE(only_what_lies_behind_others_takes_less_than_alone);
	CASE(what_was_learnt_while_a_launch_waited_is_known_of_it);
	CASE(a_shape_that_is_new_is_expected_to_take_what_others_of_the_kernel_did);
	CASE(what_is_under_way_is_not_done);
	CASE(a_launch_beside_what_keeps_the_gpu_busy_for_about_as_long_rides_along);
	CASE(what_stalls_is_let_pass_when_it_is_overdue_and_charged);
	CASE(who_waits_for_credit_is_in_the_queue_until_it_is_admitted_or_goes);
	CASE(what_was_timed_in_a_context_that_is_gone_is_forgotten);
	CASE(the_events_of_a_stream_that_is_gone_go_with_it);
	CASE(what_is_in_flight_in_a_context_that_is_gone_is_no_more);
	CASE(a_call_that_takes_long_is_not_timed);
	CASE(who_finds_the_keeper_being_started_waits_for_it);
	CASE(a_capture_ends_once);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The way of a launch and what the library's thread does, on a virtual host: what the GPU really did is known
 * to the nanosecond, and what the driver was asked is counted. */
#include "hosted.h"

#include "streams/query.h"
#include "streams/groups.h"

/* ---- shares ---- */

static void a_share_that_is_used_up_is_kept_whatever_kernels_take(void)
{
	const struct {
		uint32_t percent, streams;
		uint64_t kernel_ns;
	} cases[] = {{30, 1, 100 * US}, {30, 1, 10 * US}, {60, 2, 500 * US}, {60, 1, 20 * MS},
		     {30, 3, 20 * US},	{90, 2, 50 * US}, {5, 1, 200 * US}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint32_t percent = cases[i].percent;

		virtual_host_begin(percent, percent);
		run(2000, cases[i].kernel_ns, cases[i].streams, 0);
		/* A pause lies before the beginning: that is credit for 10 ms. */
		CHECK_WITHIN(virtual_host_busy_ns(0, 500), percent * 49 * MS / 10,
			     percent * 5 * MS + 15 * MS);
		CHECK_WITHIN(virtual_host_busy_ns(500, 2000), percent * 15 * MS - 6 * MS,
			     percent * 15 * MS + 6 * MS);
		CHECK_WITHIN(virtual_ledger.busy_ns[0], virtual_host_busy_ns(0, HOST_MS) - 25 * MS,
			     virtual_host_busy_ns(0, HOST_MS) + 3 * MS);
	}
}

/* ---- what the driver is asked ---- */

static void what_is_held_back_is_timed_by_the_gpu_and_seldom_asked_about(void)
{
	virtual_host_begin(30, 30);
	run(2000, 100 * US, 1, 0);
	/* Some 300 batches of 2 ms. */
	CHECK_WITHIN(virtual_asked.elapsed, 300, 900);
	CHECK_WITHIN(virtual_asked.event_queries, 0, 20);
	CHECK_WITHIN(virtual_asked.stream_queries, 0, 3);
	CHECK_WITHIN(virtual_asked.records, 600, 1000);
}

static void what_goes_through_at_once_is_not_timed_by_the_gpu(void)
{
	virtual_host_begin(30, 30);
	run(2000, 50 * US, 1, MS);
	CHECK_WITHIN(virtual_asked.records, 50, 250);
	CHECK_WITHIN(virtual_asked.elapsed, 10, 60);
	CHECK_WITHIN(virtual_asked.event_queries + virtual_asked.stream_queries, 100, 700);
}

static void a_group_that_is_full_has_a_marker_behind_it(void)
{
	virtual_host_begin(60, 60);
	run(2000, 20 * MS, 1, 0);
	CHECK_WITHIN(virtual_asked.event_queries, 10, 120);
	CHECK_IS(virtual_asked.stream_queries, 0);
}

static void a_launch_with_a_pass_asks_the_driver_nothing(void)
{
	virtual_host_begin(90, 90);
	run(2000, 10 * US, 1, 30 * US);
	/* Of some 60000 launches. */
	CHECK_WITHIN(virtual_asked.contexts, 100, 6000);
	CHECK_WITHIN(virtual_host_busy_ns(1000, 2000), 300 * MS, 320 * MS);
	CHECK_WITHIN(virtual_ledger.busy_ns[0], 610 * MS, 640 * MS);
}

static void with_nothing_in_flight_the_keeper_sleeps_until_it_is_rung(void)
{
	uint32_t slept;

	virtual_host_begin(30, 30);
	run(50, 50 * US, 1, MS);
	virtual_host_works(100 * MS);
	CHECK_IS(vgpu_streams(&virtual_process)->poller_sleeps, 1);
	slept = virtual_asked.poller_sleeps;
	virtual_host_works(1000 * MS);
	CHECK_IS(virtual_asked.poller_sleeps, slept);
	virtual_host_launch(1, KERNEL, 50 * US);
	virtual_host_works(5 * MS);
	CHECK(virtual_asked.poller_sleeps > slept);
}

/* Of which nobody knows how long it takes: so what comes behind it waits on the host, and wakes when it is
 * done. */
static void who_waits_on_the_host_is_not_woken_for_nothing(void)
{
	virtual_host_begin(50, 50);
	virtual_host_launch(1, KERNEL, 100 * MS);
	virtual_host_launch(1, KERNEL + 1, 100 * US);
	CHECK_WITHIN(virtual_host_now() - HOST_BEGIN, 100 * MS, 102 * MS);
	CHECK_WITHIN(virtual_asked.program_sleeps, 1, 40);
}

/* ---- how it asks ---- */

/* So many groups of a launch each, 100 µs apart and as long, the last of which was launched so long ago. */
static struct vgpu_stream *with_groups(uint32_t count, uint64_t ago_ns)
{
	struct vgpu_stream *stream;
	uint64_t now;

	virtual_host_begin(50, 50);
	stream = stream_of(1);
	now = virtual_host_now();
	for (uint32_t g = 0; g < count; g++)
		stream->group[g] = (struct vgpu_group){.launches = 1,
						       .behind = VGPU_BEHIND_MARKER,
						       .marker = (CUevent)(uintptr_t)(g + 1),
						       .expected_ns = 100 * US,
						       .unseen_ns = 100 * US,
						       .first_ns = now - ago_ns - (count - 1 - g) * 100 * US,
						       .last_ns = now - ago_ns - (count - 1 - g) * 100 * US};
	stream->head = count;
	return stream;
}

/* About how many groups at once, at most; 0: nothing is asked. */
static uint32_t asked_at_once(struct vgpu_stream *stream, uint32_t number)
{
	const struct vgpu_before before = {0};
	struct vgpu_query q;

	if (!vgpu_query_about(ENGINE, stream, number, &before, &q))
		return 0;
	CHECK_IS(q.number, number);
	CHECK_IS(q.part[q.parts - 1].count, 1);
	for (uint32_t i = 0; i < q.parts; i++) {
		CHECK_IS(q.part[i].launches, q.part[i].count);
		CHECK_IS((uintptr_t)q.part[i].marker, number + q.part[i].count);
	}
	return q.part[0].count;
}

static void groups_that_should_be_done_are_asked_about_together(void)
{
	struct vgpu_stream *stream = with_groups(6, MS);

	/* More may come into the last one. */
	CHECK_IS(asked_at_once(stream, 0), 5);
	CHECK_IS(asked_at_once(stream, 3), 2);
	CHECK_IS(asked_at_once(stream, 5), 1);
	CHECK_IS(asked_at_once(stream, 6), 0);
	stream->group[5].closed = true;
	CHECK_IS(asked_at_once(stream, 0), 6);
	CHECK_IS(asked_at_once(stream, 5), 1);
	/* A thread is launching there. */
	stream->group[3].inside = 1;
	CHECK_IS(asked_at_once(stream, 0), 3);
	CHECK_IS(asked_at_once(stream, 3), 0);
	stream->group[3].inside = 0;
	stream->group[2].expected_ns = VGPU_UNKNOWN_NS;
	CHECK_IS(asked_at_once(stream, 0), 2);
	CHECK_IS(asked_at_once(stream, 2), 1);
	/* Of these only the first can be done. */
	stream = with_groups(6, 0);
	stream->group[5].closed = true;
	for (uint32_t g = 1; g < 6; g++)
		stream->group[g].first_ns = virtual_host_now() - 50 * US;
	CHECK_IS(asked_at_once(stream, 0), 1);
}

int main(void)
{
	gpus(0);
	CASE(a_share_that_is_used_up_is_kept_whatever_kernels_take);
	CASE(what_is_held_back_is_timed_by_the_gpu_and_seldom_asked_about);
	CASE(what_goes_through_at_once_is_not_timed_by_the_gpu);
	CASE(a_group_that_is_full_has_a_marker_behind_it);
	CASE(a_launch_with_a_pass_asks_the_driver_nothing);
	CASE(with_nothing_in_flight_the_keeper_sleeps_until_it_is_rung);
	CASE(who_waits_on_the_host_is_not_woken_for_nothing);
	CASE(groups_that_should_be_done_are_asked_about_together);
	return summary();
}

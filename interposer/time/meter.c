/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "time/meter.h"

#include <stdbool.h>

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t between(uint64_t from, uint64_t to)
{
	return to > from ? to - from : 0;
}

struct vgpu_busy vgpu_meter_pending(struct vgpu_meter_device *device, const struct vgpu_measured *work)
{
	uint64_t free_ns = later(work->held_until_ns, work->begun_ns);
	struct vgpu_busy busy = {.start_ns = later(free_ns, work->last_ns + VGPU_LAUNCH_NS),
				 .end_ns = work->pending_ns};

	/* What lies before them in the stream may be what runs: it is work as well. */
	busy.busy_ns = between(busy.start_ns, busy.end_ns);
	vgpu_intervals_count(&device->intervals, busy.start_ns, busy.end_ns, UINT64_MAX, &busy.fresh);
	return busy;
}

void vgpu_meter_left(struct vgpu_meter_device *device, const struct vgpu_busy *pending, uint64_t left_ns)
{
	/* The latest: who came before it was at work before it. */
	for (uint32_t i = pending->fresh.count; i > 0 && left_ns != 0; i--) {
		const struct vgpu_interval *interval = &pending->fresh.interval[i - 1];
		uint64_t ns = earlier(interval->to_ns - interval->from_ns, left_ns);
		struct vgpu_fresh same;

		if (device->unclaimed.count == VGPU_INTERVALS)
			vgpu_intervals_forget(&device->unclaimed, device->unclaimed.interval[0].to_ns);
		vgpu_intervals_count(&device->unclaimed, interval->to_ns - ns, interval->to_ns, UINT64_MAX,
				     &same);
		left_ns -= ns;
	}
}

/* Whether kernels of several streams run at once or one after the other shows where only one of both fits
 * what was seen. Until then they run one after the other, as kernels do that fill the GPU. */
static void learn(struct vgpu_meter_device *device, bool at_once, bool in_turn)
{
	if (at_once && !in_turn && device->together < 2 * VGPU_TOGETHER)
		device->together++;
	else if (in_turn && !at_once)
		device->together = device->together > 2 ? device->together - 2 : 0;
}

/* Of what was expected much less of than was seen nobody knows when it ended: on average in the middle
 * between two looks, as long as those are as close as they then are. Behind other things it may not have been
 * at work for so long. */
static uint64_t after_last_look(const struct vgpu_measured *work, uint64_t surely)
{
	if (surely < VGPU_LONGER * work->expected_ns + VGPU_LONGER_NS ||
	    work->held_until_ns > work->first_ns || work->begun_ns != 0)
		return 0;
	return earlier(between(work->pending_ns, work->reached_ns) / 2, VGPU_LOOKS_NS / 2);
}

struct vgpu_busy vgpu_meter_finish(struct vgpu_meter_device *device, struct vgpu_meter *meter,
				   const struct vgpu_measured *work)
{
	uint64_t free_ns = later(meter->done_ns, work->held_until_ns);
	struct vgpu_busy busy = {.start_ns = later(free_ns, work->first_ns + VGPU_LAUNCH_NS)};
	uint64_t alone_ns = later(busy.start_ns, later(work->begun_ns, work->last_ns + VGPU_LAUNCH_NS));
	uint64_t surely = between(alone_ns, work->pending_ns),
		 most = between(busy.start_ns, work->reached_ns);
	uint64_t expected_ns = work->expected_ns, rest, others;
	uint64_t room = vgpu_intervals_room(&device->intervals, busy.start_ns, work->reached_ns),
		 margin = expected_ns / 4;
	bool dense = alone_ns - busy.start_ns <= margin, at_once = device->together >= VGPU_TOGETHER;

	if (work->took_ns != 0) {
		busy.busy_ns = earlier(work->took_ns, most);
		busy.end_ns = busy.start_ns + busy.busy_ns;
		vgpu_intervals_take(&device->unclaimed, busy.start_ns, busy.end_ns, UINT64_MAX);
		vgpu_intervals_count(&device->intervals, busy.start_ns, busy.end_ns, UINT64_MAX, &busy.fresh);
		meter->done_ns = later(meter->done_ns, busy.end_ns);
		return busy;
	}
	/* Of the time that was counted as surely busy it had what is left by those that were seen to be done
	 * before. */
	rest = expected_ns - vgpu_intervals_take(&device->unclaimed, alone_ns, work->pending_ns,
						 earlier(surely, expected_ns));
	others = most - vgpu_intervals_room(&device->unclaimed, busy.start_ns, work->reached_ns);
	busy.busy_ns = earlier(expected_ns, most);
	busy.end_ns = busy.start_ns + busy.busy_ns;
	if (dense && expected_ns < most)
		learn(device, busy.end_ns > work->pending_ns && rest > room + others + margin,
		      busy.end_ns + margin < work->pending_ns);
	if (expected_ns == VGPU_UNKNOWN_NS ||
	    (at_once && dense && expected_ns > surely && busy.end_ns >= work->pending_ns)) {
		vgpu_intervals_count(&device->intervals, busy.start_ns, busy.end_ns, UINT64_MAX, &busy.fresh);
	} else if (expected_ns <= surely && (rest == 0 || at_once)) {
		/* It took longer than expected. */
		busy.end_ns = work->pending_ns + after_last_look(work, surely);
		busy.busy_ns = surely + (busy.end_ns - work->pending_ns);
		vgpu_intervals_count(&device->intervals, work->pending_ns, busy.end_ns, UINT64_MAX,
				     &busy.fresh);
	} else {
		vgpu_intervals_count(&device->intervals, busy.start_ns, work->reached_ns, rest, &busy.fresh);
		busy.until_ns = work->reached_ns;
		vgpu_intervals_take(&device->unclaimed, busy.start_ns, work->reached_ns,
				    rest - earlier(busy.fresh.ns, rest));
		/* With pauses between the kernels the work ended later than without: the last began after it
		 * was launched. */
		busy.end_ns = later(busy.end_ns, later(work->pending_ns, work->last_ns + VGPU_LAUNCH_NS));
	}
	if (busy.end_ns > work->reached_ns)
		busy.end_ns = later(work->reached_ns, busy.start_ns);
	meter->done_ns = later(meter->done_ns, busy.end_ns);
	return busy;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "meter.h"

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static uint64_t between(uint64_t from, uint64_t to)
{
	return to > from ? to - from : 0;
}

/* Whether it had to wait for other streams' work, and then took what was expected. */
static int fits_behind_others(const struct vgpu_measured *work, uint64_t start_ns)
{
	return work->expected_ns < work->reached_ns && work->device_ns > start_ns &&
	       work->device_ns + work->expected_ns > work->pending_ns && work->device_ns + work->expected_ns <= work->reached_ns;
}

struct vgpu_busy vgpu_meter_finish(struct vgpu_meter *meter, const struct vgpu_measured *work)
{
	uint64_t free_ns = later(meter->done_ns, work->held_until_ns);
	struct vgpu_busy busy = {.start_ns = later(free_ns, work->first_ns + VGPU_LAUNCH_NS)};
	uint64_t surely = between(later(free_ns, work->last_ns + VGPU_LAUNCH_NS), work->pending_ns);
	uint64_t most = between(busy.start_ns, work->reached_ns);

	if (work->took_ns != 0) {
		busy.busy_ns = work->took_ns < most ? work->took_ns : most;
		busy.end_ns = busy.start_ns + busy.busy_ns;
		meter->done_ns = later(meter->done_ns, busy.end_ns);
		return busy;
	}
	busy.busy_ns = work->expected_ns > surely ? work->expected_ns : surely;
	if (busy.busy_ns > most)
		busy.busy_ns = most;
	/* It took longer than expected, unless it had to wait for other streams' work: if that fits, it did. */
	if (busy.start_ns + busy.busy_ns <= work->pending_ns && fits_behind_others(work, busy.start_ns))
		busy.busy_ns = work->device_ns + work->expected_ns - busy.start_ns;
	/* With pauses between the kernels the work ended later than without: the last began after it was launched. */
	busy.end_ns = later(busy.start_ns + busy.busy_ns, later(work->pending_ns, work->last_ns + VGPU_LAUNCH_NS));
	if (busy.end_ns > work->reached_ns)
		busy.end_ns = later(work->reached_ns, busy.start_ns);
	meter->done_ns = later(meter->done_ns, busy.end_ns);
	return busy;
}

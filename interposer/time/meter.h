/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How long the GPU was busy with work that was launched into one stream, and what of that is new: what
 * several streams do at once counts once. What can be seen from outside are the times of the launches
 * and, now and then, whether a marker behind them has been reached. Short kernels with pauses between
 * them look the same as long ones without, so what is seen only bounds the answer; within the bounds
 * what the kernels took before (cost.h) decides.
 *
 *   surely busy   from when the last of them was launched until the marker was last seen not to be
 *                 reached; counted as soon as it is seen, before what is done
 *   at most busy  from when the first could start until the marker was seen to be
 * reached */
#ifndef VGPU_TIME_METER_H
#define VGPU_TIME_METER_H

#include "time/intervals.h"

#include <stdint.h>

/* So many times as long as expected, and so much more, is much longer: then it is looked at closely, so often
 * (gate/poller.c). */
#define VGPU_LONGER 4u
#define VGPU_LONGER_NS 20000u
#define VGPU_LOOKS_NS 400000u

/* From the end of a launch call until the GPU begins, when it has nothing else to do (H200: about 2 µs). */
#define VGPU_LAUNCH_NS 2000u

/* Of one stream. */
struct vgpu_meter {
	uint64_t done_ns; /* when the work that was measured last was done, as far as is known */
};

/* Of all streams of a device. */
struct vgpu_meter_device {
	struct vgpu_intervals intervals;
	struct vgpu_intervals unclaimed; /* surely busy, and it is not known yet with what */
	uint32_t together; /* how clearly kernels of several streams run at once; from VGPU_TOGETHER on they
			      do */
};
#define VGPU_TOGETHER 4u

/* Some launches with one marker behind them. */
struct vgpu_measured {
	uint64_t first_ns, last_ns; /* when the first and the last launch call returned */
	uint64_t
		held_until_ns; /* not before that could they start: the stream had other things to do; or 0 */
	uint64_t begun_ns;     /* only from then on were they seen to be at work, although something else came
				  first; or 0 */
	uint64_t expected_ns;	    /* what all of them take; VGPU_UNKNOWN_NS: no idea */
	uint64_t took_ns; /* what the GPU itself says it took, from the first to the last without a pause; or
			     0 */
	uint64_t pending_ns;	    /* when the marker was last seen not to be reached; 0 never */
	uint64_t reached_ns;	    /* when it was seen to be reached */
};
#define VGPU_UNKNOWN_NS UINT64_MAX

struct vgpu_busy {
	uint64_t start_ns, end_ns;
	uint64_t busy_ns;	 /* with these launches */
	struct vgpu_fresh fresh; /* of that was not counted before */
	uint64_t until_ns; /* what other processes have counted of it was at some other time from start_ns
			      until then; or 0 */
};

/* The marker was seen not to be reached (pending_ns), with all of the launches made. */
struct vgpu_busy vgpu_meter_pending(struct vgpu_meter_device *device, const struct vgpu_measured *work);

/* Of what is new of that, other processes have left so much. */
void vgpu_meter_left(struct vgpu_meter_device *device, const struct vgpu_busy *pending, uint64_t left_ns);

/* It was seen to be reached. Of one stream in the order of the launches, and of several after
 * vgpu_meter_pending of all that is still at work. */
struct vgpu_busy vgpu_meter_finish(struct vgpu_meter_device *device, struct vgpu_meter *meter,
				   const struct vgpu_measured *work);

/* After a look: what is still at work, and not known to be done, was launched then or later. */
static inline void vgpu_meter_rest(struct vgpu_meter_device *device, uint64_t since_ns)
{
	vgpu_intervals_forget(&device->unclaimed, since_ns);
}

#endif

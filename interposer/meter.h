/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * How long the GPU was busy with work that was launched into one stream. What can be seen from
 * outside are the times of the launches and, now and then, whether a marker behind them has been
 * reached. Short kernels with pauses between them look the same as long ones without, so what is
 * seen only bounds the answer; within the bounds what the kernels took before (cost.h) decides.
 *
 *   surely busy   from when the last of them was launched, or what came before it was done, until
 *                 the marker was last seen not to be reached
 *   at most busy  from when the first could start until the marker was seen to be reached
 */
#ifndef VGPU_METER_H
#define VGPU_METER_H

#include <stdint.h>

/* From the end of a launch call until the GPU begins, when it has nothing else to do (H200: about 2 µs). */
#define VGPU_LAUNCH_NS 2000u

struct vgpu_meter {
	uint64_t done_ns; /* when the work that was measured last was done, as far as is known */
};

/* Some launches with one marker behind them. */
struct vgpu_measured {
	uint64_t first_ns, last_ns; /* when the first and the last launch call returned */
	uint64_t held_until_ns;	    /* not before that could they start: the stream had other things to do; or 0 */
	uint64_t expected_ns;	    /* what all of them take; VGPU_UNKNOWN_NS: no idea */
	uint64_t took_ns;	    /* what the GPU itself says it took, from the first to the last without a pause; or 0 */
	uint64_t pending_ns;	    /* when the marker was last seen not to be reached; 0 never */
	uint64_t reached_ns;	    /* when it was seen to be reached */
	uint64_t device_ns;	    /* until when the device is known to have been busy with whatever */
};
#define VGPU_UNKNOWN_NS UINT64_MAX

struct vgpu_busy {
	uint64_t start_ns, end_ns, busy_ns;
};

struct vgpu_busy vgpu_meter_finish(struct vgpu_meter *meter, const struct vgpu_measured *work);

#endif

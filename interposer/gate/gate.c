/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "gate/gate.h"

#include "api/symbols.h"
#include "base/arithmetic.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "driver/capture.h"
#include "driver/device.h"
#include "gate/bucket.h"
#include "gate/groups.h"
#include "tuning.h"

/* ---- whether a launch is held ---- */

static bool is_held(uint32_t device)
{
	const struct vgpu_limits_device *limits = &vgpu_pages.limits->device[device];

	return vgpu_gate_is_armed() && GET(limits->gated) != 0 &&
	       (vgpu_bucket_is_capped(GET(limits->job_sm_percent)) ||
		vgpu_bucket_is_capped(GET(limits->sm_percent)));
}

/* How long until the caps of job and step cover what was used; 0: they do. The limits may be others than a
 * moment ago. */
static uint64_t owed_ns(const struct vgpu_process *p, uint32_t device, uint64_t now)
{
	const struct vgpu_limits_device *limits = &vgpu_pages.limits->device[device];
	const struct vgpu_ledger *ledger = vgpu_pages.ledger;
	uint64_t of_job = 0, of_step = 0;

	if (!is_held(device))
		return 0;
	if (vgpu_bucket_is_capped(GET(limits->job_sm_percent)))
		of_job = vgpu_bucket_wait(&ledger->share_free_at_ns[device], now);
	if (vgpu_bucket_is_capped(GET(limits->sm_percent)) && p->step < VGPU_MAX_STEPS)
		of_step = vgpu_bucket_wait(&ledger->step[p->step].share_free_at_ns[device], now);
	return vgpu_larger(of_job, of_step);
}

/* ---- calls that another thread's capture would not survive ---- */

static void exchange_mode(int *mode)
{
	vgpu_fn_cuThreadExchangeStreamCaptureMode *exchange = VGPU_REAL(cuThreadExchangeStreamCaptureMode);

	if (exchange != NULL)
		exchange(mode);
}

/* Returns the mode to give to end_calls; -1: nothing was changed. */
static int begin_calls(const struct vgpu_process *p)
{
	int mode = CU_STREAM_CAPTURE_MODE_RELAXED;

	if (!vgpu_capture_possible(p))
		return -1;
	exchange_mode(&mode);
	return mode;
}

static void end_calls(int mode)
{
	if (mode >= 0)
		exchange_mode(&mode);
}

/* ---- the way of a launch ---- */

/* Where there is one device only, the driver need not be asked which it is. False: it has no context, is
 * captured, or goes to a device that is not held. */
static bool look_at(struct vgpu_process *p, CUstream stream, struct vgpu_gate_key *key)
{
	vgpu_fn_cuCtxGetCurrent *get_current = VGPU_REAL(cuCtxGetCurrent);
	CUcontext context = NULL;
	CUdevice ordinal = 0;
	int device;

	if (get_current == NULL || get_current(&context) != CUDA_SUCCESS || context == NULL)
		return false;
	if (vgpu_device_several(p) && !vgpu_device_of_stream(p, stream, &ordinal))
		return false;
	device = vgpu_device_of_ordinal(p, ordinal);
	if (device < 0 || !is_held((uint32_t)device))
		return false;
	*key = vgpu_gate_key(context, stream, (uint32_t)device);
	return !vgpu_capture_possible(p) || !vgpu_capture_of_stream(stream);
}

/* Not by a call in which a thread can be cancelled. */
static void sleep_ns(uint64_t ns)
{
	uint32_t nobody_wakes = 0;

	vgpu_futex_wait(&nobody_wakes, 0, FUTEX_PRIVATE_FLAG, (int64_t)ns);
}

/* Waits until the launch may go, and has it join a group. */
static enum vgpu_gate_joined pass_through(struct vgpu_process *p, const struct vgpu_gate_key *key,
					  struct vgpu_pass *pass)
{
	uint64_t now = vgpu_now_ns(), since = now, full_since = 0;
	bool flies = true;

	vgpu_gate_settle_stream(p, key);
	for (;;) {
		uint64_t wait = now - since < VGPU_GATE_WAIT_MOST_NS ? owed_ns(p, key->device, now) : 0;
		enum vgpu_gate_joined joined = VGPU_JOINS_LATER;

		if (wait == 0) {
			full_since = full_since == 0 ? now : full_since;
			joined = vgpu_gate_join(p, key, now, now - full_since >= VGPU_GATE_STALLED_NS,
						&pass->group);
			wait = VGPU_GATE_GROUP_LOOK_NS;
		} else {
			full_since = 0;
		}
		pass->begun_ns = now;
		if (joined != VGPU_JOINS_LATER)
			return joined;
		sleep_ns(vgpu_smaller(wait, flies ? VGPU_GATE_FLIGHT_LOOK_NS : VGPU_GATE_LOOK_NS));
		flies = vgpu_gate_settle_context(p, key->context);
		now = vgpu_now_ns();
	}
}

void vgpu_gate_enter(struct vgpu_process *p, struct vgpu_pass *pass, CUstream stream)
{
	struct vgpu_gate_key key;
	enum vgpu_gate_joined joined;
	int mode;

	*pass = (struct vgpu_pass){.stream = stream};
	if (!look_at(p, stream, &key))
		return;
	mode = begin_calls(p);
	joined = pass_through(p, &key, pass);
	end_calls(mode);
	if (joined == VGPU_NO_EVENT && (GET(vgpu_pages.limits->flags) & VGPU_FAIL_OPEN) != 0)
		return;
	pass->synchronises = joined == VGPU_NO_EVENT;
	pass->device = &vgpu_gate(p)->device[key.device];
}

void vgpu_gate_leave(struct vgpu_process *p, struct vgpu_pass *pass, CUresult result)
{
	vgpu_fn_cuStreamSynchronize *synchronize = VGPU_REAL(cuStreamSynchronize);
	uint32_t device;
	int mode;

	if (pass->device == NULL)
		return;
	device = (uint32_t)(pass->device - vgpu_gate(p)->device);
	mode = begin_calls(p);
	if (pass->group != NULL) {
		vgpu_gate_behind(p, pass->group, pass->stream);
	} else if (result == CUDA_SUCCESS && pass->synchronises) {
		if (synchronize != NULL)
			synchronize(pass->stream);
		vgpu_gate_charge(p, device, pass->begun_ns, vgpu_now_ns() - pass->begun_ns);
	} else if (result == CUDA_SUCCESS) {
		/* Of one stream too many. */
		vgpu_gate_charge(p, device, pass->begun_ns,
				 vgpu_larger(GET(pass->device->launch_ns), VGPU_GATE_UNTIMED_NS));
	}
	end_calls(mode);
}

void vgpu_gate_settle(struct vgpu_process *p, CUcontext context)
{
	vgpu_fn_cuCtxGetCurrent *get_current = VGPU_REAL(cuCtxGetCurrent);
	int mode;

	if (GET(vgpu_gate(p)->high) == 0)
		return;
	if (context == NULL &&
	    (get_current == NULL || get_current(&context) != CUDA_SUCCESS || context == NULL))
		return;
	mode = begin_calls(p);
	vgpu_gate_settle_context(p, context);
	end_calls(mode);
}

void vgpu_gate_context_gone(struct vgpu_process *p, CUcontext context)
{
	if (GET(vgpu_gate(p)->high) != 0)
		vgpu_gate_forget_context(p, context);
}

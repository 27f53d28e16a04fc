/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "admission/cosched.h"

#include "admission/credit.h"
#include "admission/load.h"
#include "admission/turns.h"
#include "base/atomics.h"
#include "base/futex.h"

/* For so long after such a wait was seen. */
#define TOGETHER_NS 2000000000u
/* What one GPU may owe while another one begins. */
#define BEHIND_NS 500000

void vgpu_cosched_seen(uint64_t now_ns)
{
	if (GET(vgpu_pages.limits->device_count) > 1)
		SET(vgpu_pages.ledger->late_ns, now_ns);
}

/* What is at work there may be waiting for this GPU, so then nobody waits for it. */
static bool pauses(struct vgpu_process *p, uint32_t device, uint64_t now_ns)
{
	return vgpu_time_is_capped(device) && vgpu_time_credit(p, device, now_ns) < -BEHIND_NS &&
	       GET(vgpu_load(p, device)->in_flight) == 0 && !vgpu_turns_siblings_busy(p, device, now_ns);
}

bool vgpu_cosched_holds(struct vgpu_process *p, uint32_t device)
{
	uint32_t count = GET(vgpu_pages.limits->device_count);
	uint64_t late_ns, now;

	if (count < 2 || (late_ns = GET(vgpu_pages.ledger->late_ns)) == 0)
		return false;
	now = vgpu_now_ns();
	if (late_ns > now || now - late_ns > TOGETHER_NS)
		return false;
	for (uint32_t d = 0; d < count && d < VGPU_MAX_DEVICES; d++) {
		if (d != device && pauses(p, d, now))
			return true;
	}
	return false;
}

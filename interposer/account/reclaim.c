/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "account/reclaim.h"

#include "account/account.h"
#include "account/locked.h"
#include "base/atomics.h"
#include "base/futex.h"
#include "tuning.h"

#include <time.h>

bool vgpu_reclaim_is_measured(uint32_t device, uint32_t but_slot)
{
	uint32_t high = GET(vgpu_pages.ledger->slots_high);
	bool found = false;

	for (uint32_t i = 0; i < high && i < VGPU_MAX_PROCS && !found; i++) {
		const struct vgpu_ledger_slot *slot = &vgpu_pages.ledger->slot[i];

		found = i != but_slot && GET(slot->state) == 1 && (GET(slot->measuring) >> device & 1) != 0;
	}
	return found;
}

static bool others_measure(struct vgpu_process *p, uint32_t device)
{
	uint64_t in_vain_ns = GET(vgpu_account(p)->in_vain_ns);

	return (GET(vgpu_pages.ledger->measuring) >> device & 1) != 0 &&
	       (in_vain_ns == 0 || vgpu_now_ns() - in_vain_ns >= VGPU_MEASURE_IN_VAIN_NS) &&
	       vgpu_reclaim_is_measured(device, GET(p->slot));
}

/* As long as they do, but not for long, tries to charge the bytes. */
static bool wait_until_measured(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	uint64_t since = vgpu_now_ns();
	bool charged = false;

	while (!charged && others_measure(p, device)) {
		if (vgpu_now_ns() - since >= VGPU_MEASURED_SOON_NS) {
			SET(vgpu_account(p)->in_vain_ns, vgpu_now_ns());
			break;
		}
		nanosleep(&(struct timespec){0, VGPU_MEASURE_PAUSE_NS}, NULL);
		vgpu_account_sweep(p, false);
		charged = vgpu_account_try(p, device, bytes);
	}
	return charged;
}

/* Bytes that are reserved for calls in the driver are mostly free again in a moment. */
static bool try_until_others_are_done(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	const struct timespec pause = {0, VGPU_OTHERS_PAUSE_NS};
	uint64_t since = vgpu_now_ns();

	while (vgpu_account_would_fit(p, device, bytes) && vgpu_now_ns() - since < VGPU_OTHERS_DONE_NS) {
		if (vgpu_account_try(p, device, bytes))
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

bool vgpu_account_charge(struct vgpu_process *p, uint32_t device, uint64_t bytes)
{
	if (vgpu_account_try(p, device, bytes))
		return true;
	vgpu_account_sweep(p, true);
	for (vgpu_reclaimer *const *reclaimer = vgpu_reclaimers; *reclaimer != NULL; reclaimer++)
		(*reclaimer)(p, device);
	/* The charge of another process for a context of unknown cost comes back in part in a moment. */
	if (others_measure(p, device) && vgpu_account_ever_fits(device, bytes) &&
	    wait_until_measured(p, device, bytes))
		return true;
	return try_until_others_are_done(p, device, bytes) || vgpu_account_try_last(p, device, bytes);
}

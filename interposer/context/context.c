/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "context/context.h"

#include "api/symbols.h"
#include "account/context_cost.h"
#include "context/overhead.h"
#include "driver/contexts.h"
#include "driver/device.h"
#include "driver/free_memory.h"
#include "driver/report.h"
#include "gate/gate.h"
#include "memory/array.h"
#include "memory/blocks.h"
#include "pools/table.h"
#include "process/message.h"

static bool is_active(CUdevice ordinal)
{
	vgpu_fn_cuDevicePrimaryCtxGetState *get_state = VGPU_REAL(cuDevicePrimaryCtxGetState);
	unsigned int flags;
	int active = 0;

	return get_state != NULL && get_state(ordinal, &flags, &active) == CUDA_SUCCESS && active;
}

bool vgpu_context_begin(struct vgpu_process *p, CUdevice ordinal, bool primary, struct vgpu_coming *coming)
{
	*coming = (struct vgpu_coming){.device = VGPU_NO_DEVICE};
	if (p == NULL || (primary && is_active(ordinal)))
		return true;
	coming->device = vgpu_device_of_ordinal(p, ordinal);
	if (coming->device < 0)
		return true; /* nothing can be allocated there */
	if (!vgpu_context_cost_charge(p, (uint32_t)coming->device, &coming->bytes))
		return false;
	vgpu_overhead_coming(p, (uint32_t)coming->device, coming->bytes);
	vgpu_report_prepare(p, (uint32_t)coming->device);
	return true;
}

void vgpu_context_failed(struct vgpu_process *p, const struct vgpu_coming *coming)
{
	if (p == NULL || coming->device < 0)
		return;
	vgpu_overhead_not_coming(p, (uint32_t)coming->device, coming->bytes);
	vgpu_context_cost_settled(p, (uint32_t)coming->device, VGPU_COST_UNKNOWN);
	vgpu_report_ready(p);
}

/* Sets the charge to the context's cost, which the ledger remembers if it was the first context. */
static bool settle_coming(struct vgpu_process *p, struct vgpu_coming *coming, bool first)
{
	bool fits = vgpu_overhead_came(p, (uint32_t)coming->device, coming->bytes, &coming->cost_bytes);

	vgpu_context_cost_settled(p, (uint32_t)coming->device,
				  first ? coming->cost_bytes : VGPU_COST_UNKNOWN);
	return fits;
}

bool vgpu_context_made(struct vgpu_process *p, CUcontext context, CUdevice ordinal, bool primary,
		       struct vgpu_coming *coming)
{
	int device = vgpu_device_of_ordinal(p, ordinal);
	struct vgpu_context gone;
	bool first, noted, fits = true;

	vgpu_contexts_count_made(p, context);
	if (device < 0)
		return true;
	first = !vgpu_contexts_exist(p, (uint32_t)device);
	noted = vgpu_contexts_note(p, context, ordinal, (uint32_t)device, primary);
	if (coming != NULL && coming->device >= 0)
		fits = settle_coming(p, coming, first);
	else if (noted)
		fits = vgpu_overhead_settle(p, (uint32_t)device);
	if (!fits && noted)
		vgpu_contexts_take(p, context, &gone);
	return fits;
}

void vgpu_context_undone(struct vgpu_process *p, CUdevice ordinal, const struct vgpu_coming *coming)
{
	int device = vgpu_device_of_ordinal(p, ordinal);

	if (device >= 0 && vgpu_contexts_exist(p, (uint32_t)device))
		vgpu_overhead_settle(p, (uint32_t)device);
	else if (device >= 0)
		vgpu_overhead_end(p, (uint32_t)device);
	if (coming->device >= 0)
		vgpu_message_limit(p, (uint32_t)coming->device,
				   coming->cost_bytes != VGPU_COST_UNKNOWN ? coming->cost_bytes
									   : coming->bytes);
}

bool vgpu_context_of_green(struct vgpu_process *p, CUcontext context, CUgreenCtx green)
{
	CUdevice ordinal;

	return !vgpu_contexts_ordinal(p, (CUcontext)green, &ordinal) ||
	       vgpu_context_made(p, context, ordinal, true, NULL);
}

/* The key of a context that is being destroyed: no address is odd. */
static CUcontext leaving(CUcontext context)
{
	return (CUcontext)((uintptr_t)context | 1);
}

bool vgpu_context_leaves(struct vgpu_process *p, CUcontext context, struct vgpu_context *noted)
{
	if (context == NULL)
		return false;
	vgpu_blocks_change_context(p, context, leaving(context));
	vgpu_gate_context_gone(p, context);
	return vgpu_contexts_take(p, context, noted);
}

void vgpu_context_stays(struct vgpu_process *p, CUcontext context, const struct vgpu_context *noted)
{
	if (context == NULL)
		return;
	if (noted != NULL)
		vgpu_contexts_put_back(p, noted);
	vgpu_blocks_change_context(p, leaving(context), context);
}

void vgpu_context_left(struct vgpu_process *p, CUcontext context, const struct vgpu_context *noted)
{
	vgpu_blocks_drop_context(p, leaving(context));
	vgpu_array_drop_context(p, context);
	vgpu_free_memory_forget(p);
	vgpu_pools_chosen_anew(p);
	vgpu_pools_settle_all(p);
	if (noted == NULL)
		return;
	if (vgpu_contexts_exist(p, noted->device)) {
		vgpu_overhead_unpromise(p, noted->device, noted->promised_bytes);
		vgpu_overhead_settle(p, noted->device);
	} else {
		vgpu_overhead_end(p, noted->device);
	}
}

void vgpu_context_gone(struct vgpu_process *p, CUcontext context)
{
	struct vgpu_context noted;
	bool known = vgpu_context_leaves(p, context, &noted);

	if (context != NULL)
		vgpu_context_left(p, context, known ? &noted : NULL);
}

void vgpu_context_detached(struct vgpu_process *p, CUcontext context)
{
	vgpu_fn_cuCtxGetApiVersion *ask = VGPU_REAL(cuCtxGetApiVersion);
	unsigned int version;

	if (context != NULL && ask != NULL && ask(context, &version) != CUDA_SUCCESS)
		vgpu_context_gone(p, context);
}

bool vgpu_context_promise(struct vgpu_process *p, CUcontext context, uint64_t bytes)
{
	int device = vgpu_contexts_promise_changed(p, context, bytes, 0);

	if (device < 0 || vgpu_overhead_promise(p, (uint32_t)device, bytes))
		return true;
	vgpu_contexts_promise_changed(p, context, 0, bytes);
	return false;
}

void vgpu_context_unpromise(struct vgpu_process *p, CUcontext context, uint64_t bytes)
{
	int device = vgpu_contexts_promise_changed(p, context, 0, bytes);

	if (device < 0)
		return;
	vgpu_overhead_unpromise(p, (uint32_t)device, bytes);
	vgpu_overhead_settle(p, (uint32_t)device);
}

void vgpu_context_green_gone(struct vgpu_process *p, CUcontext green, CUdevice ordinal)
{
	vgpu_fn_cuDevicePrimaryCtxRetain *retain = VGPU_REAL(cuDevicePrimaryCtxRetain);
	vgpu_fn_cuDevicePrimaryCtxRelease_v2 *release = VGPU_REAL(cuDevicePrimaryCtxRelease_v2);
	struct vgpu_context gone;
	CUcontext primary;

	/* Also of the context that was made of it, whose name is not known. */
	vgpu_gate_context_gone(p, NULL);
	if (!is_active(ordinal) || retain == NULL || release == NULL ||
	    retain(&primary, ordinal) != CUDA_SUCCESS) {
		vgpu_context_primary_released(p, ordinal);
		return;
	}
	if (vgpu_contexts_take(p, green, &gone)) {
		vgpu_blocks_change_context(p, green, primary);
		vgpu_contexts_note(p, primary, ordinal, gone.device, true);
		vgpu_overhead_settle(p, gone.device);
	}
	release(ordinal);
	vgpu_context_primary_released(p, ordinal);
}

void vgpu_context_primary_released(struct vgpu_process *p, CUdevice ordinal)
{
	vgpu_fn_cuDevicePrimaryCtxGetState *get_state = VGPU_REAL(cuDevicePrimaryCtxGetState);
	CUcontext context;
	unsigned int flags;
	int active = 1;

	if (get_state == NULL || get_state(ordinal, &flags, &active) != CUDA_SUCCESS || active)
		return;
	/* The primary context, and what was made of it by green contexts. */
	do {
		context = vgpu_contexts_primary(p, ordinal);
		vgpu_context_gone(p, context);
	} while (context != NULL);
}

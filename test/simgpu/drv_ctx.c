/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Contexts: made, destroyed, and each thread's stack of them. A destroyed context's struct stays,
 * so that a thread that still has it current gets an error and not a crash. */
#include "drv_control.h"

#include <stdlib.h>

#define STACK_DEPTH 64

static __thread CUcontext stack[STACK_DEPTH];
static __thread int depth;

CUresult drv_current(CUcontext *ctx)
{
	NEED(drv_ready());
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (stack[depth - 1]->dead)
		return (CUresult)SIM_CUDA_ERROR_CONTEXT_IS_DESTROYED;
	*ctx = stack[depth - 1];
	return CUDA_SUCCESS;
}

CUresult drv_context(CUcontext ctx)
{
	for (CUcontext c = drv.contexts; c != NULL; c = c->next)
		if (c == ctx)
			return c->dead ? (CUresult)SIM_CUDA_ERROR_CONTEXT_IS_DESTROYED
				       : CUDA_SUCCESS;
	return CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult create(CUcontext *out, unsigned flags, CUdevice device, CUcontext derived_from, bool primary)
{
	CUcontext ctx = calloc(1, sizeof(*ctx));

	if (ctx == NULL)
		return CUDA_ERROR_OUT_OF_MEMORY;
	ctx->ordinal = device;
	ctx->device = drv.device[device];
	ctx->derived_from = derived_from;
	if (drv_fail_injected() || (derived_from == NULL && sim_context_take(ctx->device) != 0)) {
		free(ctx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	if (sim_conf.context_us != 0)
		drv_sleep_until(sim_now_ns() + sim_conf.context_us * 1000ull);
	if (drv_control_context(ctx) != CUDA_SUCCESS) {
		sim_context_give(ctx->device);
		free(ctx);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	ctx->primary = primary;
	ctx->flags = flags;
	ctx->id = ++drv.next_id;
	ctx->legacy.ctx = ctx;
	drv_limits_begin(ctx);
	ctx->next = drv.contexts;
	drv.contexts = ctx;
	*out = ctx;
	return CUDA_SUCCESS;
}

static void destroy(CUcontext ctx)
{
	drv_arrays_free_all(ctx);
	while (ctx->blocks != NULL)
		drv_block_release(ctx->blocks);
	drv_stream_free_all(ctx);
	drv_control_context_end(ctx);
	drv_shrink(ctx, ctx->grown_bytes);
	if (ctx->derived_from == NULL)
		sim_context_give(ctx->device);
	ctx->dead = true;
	if (depth > 0 && stack[depth - 1] == ctx)
		depth--;
}

CUresult sim_cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
	CUresult result;

	NEED(drv_ready());
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	if (depth == STACK_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	drv_lock();
	result = create(context, flags, device, NULL, false);
	if (result == CUDA_SUCCESS)
		stack[depth++] = *context;
	return drv_unlock(result);
}

CUresult sim_cuCtxCreate(CUcontext *context, unsigned int flags, CUdevice device)
{
	return sim_cuCtxCreate_v2(context, flags, device);
}

CUresult sim_cuCtxCreate_v3(CUcontext *context, CUexecAffinityParam *affinity, int affinity_count,
			    unsigned int flags, CUdevice device)
{
	if (affinity != NULL || affinity_count != 0)
		return CUDA_ERROR_NOT_SUPPORTED; /* that takes MPS */
	return sim_cuCtxCreate_v2(context, flags, device);
}

CUresult sim_cuCtxCreate_v4(CUcontext *context, CUctxCreateParams *params, unsigned int flags,
			    CUdevice device)
{
	if (params != NULL)
		return CUDA_ERROR_NOT_SUPPORTED;
	return sim_cuCtxCreate_v2(context, flags, device);
}

CUresult sim_cuCtxDestroy_v2(CUcontext context)
{
	CUresult result;

	NEED(drv_ready());
	drv_lock();
	result = drv_context(context);
	if (result == CUDA_SUCCESS && context->primary)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result == CUDA_SUCCESS)
		destroy(context);
	return drv_unlock(result);
}

CUresult sim_cuCtxDestroy(CUcontext context)
{
	return sim_cuCtxDestroy_v2(context);
}

CUresult sim_cuCtxAttach(CUcontext *context, unsigned int flags)
{
	NEED(drv_ready());
	if (context == NULL || flags != 0)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_current(context));
	drv_lock();
	(*context)->attached++;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuCtxDetach(CUcontext context)
{
	CUresult result;

	NEED(drv_ready());
	drv_lock();
	result = drv_context(context);
	if (result == CUDA_SUCCESS && context->primary)
		result = CUDA_ERROR_INVALID_CONTEXT;
	if (result == CUDA_SUCCESS && context->attached > 0)
		context->attached--;
	else if (result == CUDA_SUCCESS)
		destroy(context);
	return drv_unlock(result);
}

CUresult sim_cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
	CUresult result = CUDA_SUCCESS;

	NEED(drv_ready());
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	drv_lock();
	if (drv.primary[device] == NULL)
		result = create(&drv.primary[device], drv.primary_flags[device], device, NULL, true);
	if (result == CUDA_SUCCESS) {
		drv.primary_refs[device]++;
		*context = drv.primary[device];
	}
	return drv_unlock(result);
}

CUresult drv_context_derive(CUcontext *out, CUcontext primary)
{
	return create(out, primary->flags, primary->ordinal, primary, false);
}

static void end_primary(CUdevice device)
{
	for (CUcontext c = drv.contexts; c != NULL && drv.primary[device] != NULL; c = c->next)
		if (c->derived_from == drv.primary[device] && !c->dead)
			destroy(c);
	if (drv.primary[device] != NULL)
		destroy(drv.primary[device]);
	drv.primary[device] = NULL;
	drv.primary_refs[device] = 0;
}

CUresult sim_cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
	CUresult result = CUDA_SUCCESS;

	NEED(drv_device(device));
	drv_lock();
	if (drv.primary_refs[device] == 0)
		result = CUDA_ERROR_INVALID_CONTEXT;
	else if (--drv.primary_refs[device] == 0)
		end_primary(device);
	return drv_unlock(result);
}

CUresult sim_cuDevicePrimaryCtxRelease(CUdevice device)
{
	return sim_cuDevicePrimaryCtxRelease_v2(device);
}

CUresult sim_cuDevicePrimaryCtxReset_v2(CUdevice device)
{
	NEED(drv_device(device));
	drv_lock();
	end_primary(device);
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuDevicePrimaryCtxReset(CUdevice device)
{
	return sim_cuDevicePrimaryCtxReset_v2(device);
}

CUresult sim_cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
	NEED(drv_ready());
	if (flags == NULL || active == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	NEED(drv_device(device));
	drv_lock();
	*flags = drv.primary_flags[device];
	*active = drv.primary[device] != NULL;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned int flags)
{
	NEED(drv_device(device));
	drv_lock();
	drv.primary_flags[device] = flags;
	return drv_unlock(CUDA_SUCCESS);
}

CUresult sim_cuDevicePrimaryCtxSetFlags(CUdevice device, unsigned int flags)
{
	return sim_cuDevicePrimaryCtxSetFlags_v2(device, flags);
}

CUresult sim_cuCtxGetCurrent(CUcontext *context)
{
	NEED(drv_ready());
	drv_asked(SIM_ASKED_CURRENT);
	if (context == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*context = depth > 0 ? stack[depth - 1] : NULL;
	return CUDA_SUCCESS;
}

static CUresult known(CUcontext context)
{
	drv_lock();
	return drv_unlock(drv_context(context));
}

CUresult sim_cuCtxSetCurrent(CUcontext context)
{
	NEED(drv_ready());
	if (context == NULL) {
		depth -= depth > 0;
		return CUDA_SUCCESS;
	}
	NEED(known(context));
	if (depth == 0)
		depth = 1;
	stack[depth - 1] = context;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxPushCurrent_v2(CUcontext context)
{
	NEED(drv_ready());
	NEED(known(context));
	if (depth == STACK_DEPTH)
		return CUDA_ERROR_OUT_OF_MEMORY;
	stack[depth++] = context;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxPushCurrent(CUcontext context)
{
	return sim_cuCtxPushCurrent_v2(context);
}

CUresult sim_cuCtxPopCurrent_v2(CUcontext *context)
{
	NEED(drv_ready());
	if (depth == 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (context != NULL)
		*context = stack[depth];
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxPopCurrent(CUcontext *context)
{
	return sim_cuCtxPopCurrent_v2(context);
}

CUresult sim_cuCtxGetDevice(CUdevice *device)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (device == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*device = ctx->ordinal;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetFlags(unsigned int *flags)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (flags == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = ctx->flags;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetApiVersion(CUcontext context, unsigned int *version)
{
	CUcontext ctx = context;

	if (version == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (ctx == NULL)
		NEED(drv_current(&ctx));
	NEED(drv_ready());
	NEED(known(ctx));
	*version = 3020;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetId(CUcontext context, unsigned long long *id)
{
	CUcontext ctx = context;

	if (id == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (ctx == NULL)
		NEED(drv_current(&ctx));
	NEED(drv_ready());
	NEED(known(ctx));
	*id = ctx->id;
	return CUDA_SUCCESS;
}

CUresult sim_cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (least != NULL)
		*least = 0;
	if (greatest != NULL)
		*greatest = -5;
	return CUDA_SUCCESS;
}

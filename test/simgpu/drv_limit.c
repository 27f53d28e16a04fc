/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a context takes beyond its blocks: modules, and the stacks and heaps of kernels. The limits
 * that it starts with are in context_mib. What is above them is taken at once for stacks, and by
 * the next launch for the heap and the printf buffer, as an H200's driver does. */
#include "drv.h"

#define HEAP_BESIDES (150 * SIM_MIB)

static const size_t first_limit[SIM_LIMITS] = { 1024, SIM_MIB, 8 * SIM_MIB };

void drv_limits_begin(CUcontext ctx)
{
	for (int i = 0; i < SIM_LIMITS; i++)
		ctx->limit[i] = first_limit[i];
}

bool drv_grow(CUcontext ctx, uint64_t bytes)
{
	uint64_t physical = sim_round_up(bytes, SIM_GRANULE_BYTES);

	if (bytes > UINT64_MAX / 2 || sim_mem_take(ctx->device, physical) != 0)
		return false;
	ctx->grown_bytes += physical;
	return true;
}

void drv_shrink(CUcontext ctx, uint64_t bytes)
{
	uint64_t physical = sim_round_up(bytes, SIM_GRANULE_BYTES);

	sim_mem_give(ctx->device, physical);
	ctx->grown_bytes -= physical;
}

/* A stack is there for every thread that the device can run at once. */
static uint64_t bytes_of(CUcontext ctx, int limit, size_t value)
{
	uint64_t each =
		limit == CU_LIMIT_STACK_SIZE ? (uint64_t)sim_conf.device[ctx->device].sm_count * 2048 : 1;
	uint64_t bytes;

	if (value <= first_limit[limit])
		return 0;
	if (limit == CU_LIMIT_MALLOC_HEAP_SIZE) /* measured on an H200 */
		return value > UINT64_MAX / 2 ? value : value - first_limit[limit] + HEAP_BESIDES;
	return __builtin_mul_overflow(value - first_limit[limit], each, &bytes) ? UINT64_MAX : bytes;
}

CUresult sim_cuCtxGetLimit(size_t *value, int limit)
{
	CUcontext ctx;

	NEED(drv_current(&ctx));
	if (value == NULL)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit < 0 || limit >= SIM_LIMITS)
		return (CUresult)215; /* UNSUPPORTED_LIMIT */
	*value = ctx->limit[limit];
	return CUDA_SUCCESS;
}

/* Brings what is taken for one limit to what it asks for. */
static bool apply(CUcontext ctx, int limit)
{
	uint64_t want = bytes_of(ctx, limit, ctx->limit[limit]);

	if (want == ctx->made_bytes[limit])
		return true;
	drv_shrink(ctx, ctx->made_bytes[limit]);
	if (drv_grow(ctx, want)) {
		ctx->made_bytes[limit] = want;
		return true;
	}
	drv_grow(ctx, ctx->made_bytes[limit]);
	return false;
}

bool drv_limits_apply(CUcontext ctx)
{
	return apply(ctx, CU_LIMIT_PRINTF_FIFO_SIZE) && apply(ctx, CU_LIMIT_MALLOC_HEAP_SIZE);
}

CUresult sim_cuCtxSetLimit(int limit, size_t value)
{
	CUcontext ctx;
	size_t before;
	bool fits;

	NEED(drv_current(&ctx));
	if (limit < 0 || limit >= SIM_LIMITS)
		return (CUresult)215;
	drv_lock();
	before = ctx->limit[limit];
	ctx->limit[limit] = value;
	fits = !drv_fail_injected() && (limit != CU_LIMIT_STACK_SIZE || apply(ctx, limit));
	if (!fits)
		ctx->limit[limit] = before;
	return drv_unlock(fits ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "spin.h"

static CUresult back(void)
{
	return cu.cuCtxSetCurrent(context);
}

static CUresult make_context(struct things *t)
{
	TRY(cu.cuCtxCreate_v2(&t->context, 0, 0));
	return back();
}

static CUresult end_context(struct things *t)
{
	TRY(cu.cuCtxDestroy_v2(t->context));
	return back();
}

/* Its own work, which may be held back, too. */
static CUresult end_busy_context(struct things *t)
{
	TRY(cu.cuCtxSetCurrent(t->context));
	TRY(cu.cuModuleLoadData(&t->module, SPIN_TEXT));
	TRY(cu.cuModuleGetFunction(&t->function, t->module, SPIN_NAME));
	for (int i = 0; i < 4; i++)
		TRY(launch(t->function, 200, NULL));
	return end_context(t);
}

static CUresult set_limit(struct things *t, int limit, size_t more)
{
	TRY(cu.cuCtxGetLimit(&t->limit, limit));
	return cu.cuCtxSetLimit(limit, t->limit + more);
}

static CUresult raise_printf(struct things *t)
{
	return set_limit(t, CU_LIMIT_PRINTF_FIFO_SIZE, MIB);
}

static CUresult raise_stack(struct things *t)
{
	return set_limit(t, CU_LIMIT_STACK_SIZE, 1024);
}

static CUresult lower_stack(struct things *t)
{
	return cu.cuCtxSetLimit(CU_LIMIT_STACK_SIZE, t->limit);
}

static CUresult lower_printf(struct things *t)
{
	return cu.cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, t->limit);
}

static CUresult synchronise(struct things *t)
{
	(void)t;
	return cu.cuCtxSynchronize();
}

static const struct call calls[] = {
	{"cuCtxCreate", &cu.cuCtxCreate_v2, nothing, make_context, end_context},
	{"cuCtxDestroy", &cu.cuCtxDestroy_v2, make_context, end_context, nothing},
	{"cuCtxDestroy, at work", &cu.cuCtxDestroy_v2, make_context, end_busy_context, nothing},
	{"cuCtxSetLimit, printf", &cu.cuCtxSetLimit, nothing, raise_printf, lower_printf},
	{"cuCtxSetLimit, stack", &cu.cuCtxSetLimit, nothing, raise_stack, lower_stack},
	{"cuCtxSynchronize", &cu.cuCtxSynchronize, nothing, synchronise, nothing},
};

const struct calls calls_of_contexts = {"contexts", calls, sizeof(calls) / sizeof(calls[0])};

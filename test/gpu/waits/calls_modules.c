/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "spin.h"

static CUresult load(struct things *t)
{
	return cu.cuModuleLoadData(&t->module, SPIN_TEXT);
}

static CUresult unload(struct things *t)
{
	return cu.cuModuleUnload(t->module);
}

static CUresult find(struct things *t)
{
	return cu.cuModuleGetFunction(&t->function, t->module, SPIN_NAME);
}

static CUresult load_and_find(struct things *t)
{
	TRY(load(t));
	return find(t);
}

/* Where kernels are loaded lazily, that is when it is. */
static CUresult first_launch(struct things *t)
{
	return launch(t->function, 100, t->stream);
}

static CUresult load_and_launch(struct things *t)
{
	TRY(load_and_find(t));
	TRY(first_launch(t));
	return cu.cuCtxSynchronize();
}

static CUresult cooperative(struct things *t)
{
	unsigned us = 100, loops = 20000;
	void *params[] = {&us, &loops};

	return cu.cuLaunchCooperativeKernel(t->function, 8, 1, 1, 32, 1, 1, 0, t->stream, params);
}

static const struct call calls[] = {
	{"cuModuleLoadData", &cu.cuModuleLoadData, nothing, load, unload},
	{"cuModuleGetFunction", &cu.cuModuleGetFunction, load, find, unload},
	{"cuLaunchKernel, first", &cu.cuLaunchKernel, load_and_find, first_launch, unload},
	{"cuLaunchCooperativeKernel, first", &cu.cuLaunchCooperativeKernel, load_and_find, cooperative, unload},
	{"cuModuleUnload", &cu.cuModuleUnload, load_and_launch, unload, nothing},
};

const struct calls calls_of_modules = {"modules", calls, sizeof(calls) / sizeof(calls[0])};

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds LAUNCH and LAUNCH_SEVERAL: work for the GPU. Nothing is looked at but whether the gate is armed, and
 * whether something was loaded that this may be the first launch of. */
#ifndef VGPU_CUDA_LAUNCH_H
#define VGPU_CUDA_LAUNCH_H

#include "context/overhead.h"
#include "cuda/memory.h"
#include "gate/gate.h"

#define PASSES(p) (!vgpu_overhead_awaits_launch(p) && !vgpu_gate_is_armed())

struct launch {
	struct vgpu_pass pass;
	uint32_t loads; /* that there were before */
};

static void launch_begins(struct vgpu_process *p, struct launch *launch, CUstream stream)
{
	launch->pass = (struct vgpu_pass){0};
	if (p == NULL)
		return;
	launch->loads = vgpu_overhead_loads(p);
	if (vgpu_gate_is_armed())
		vgpu_gate_enter(p, &launch->pass, stream);
}

static CUresult launch_ends(struct vgpu_process *p, struct launch *launch, CUresult result)
{
	if (launch->pass.device != NULL)
		vgpu_gate_leave(p, &launch->pass, result);
	if (p != NULL)
		vgpu_overhead_launched(p, launch->loads);
	return result;
}

#define WRAP_LAUNCH(symbol, params, args, stream)                                               \
	static __attribute__((noinline)) CUresult launch_##symbol params                        \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct launch launch;                                                           \
                                                                                                \
		launch_begins(p, &launch, stream);                                              \
		return launch_ends(p, &launch, real args);                                      \
	}                                                                                       \
	WRAP_QUICKLY(symbol, params, args, PASSES(p), launch_##symbol)

/* Only the driver looks into a NULL configuration. */
static const CUlaunchConfig no_config;
#define CONFIG(config) ((config) != NULL ? (config) : &no_config)

/* One kernel on several devices, which wait for each other: each has its pass before any of them goes. */
struct launches {
	struct launch each[VGPU_MAX_DEVICES];
	unsigned int count;
};

static void launches_begin(struct vgpu_process *p, struct launches *launches, const CUDA_LAUNCH_PARAMS *list,
			   unsigned int count)
{
	launches->count = list == NULL || count > VGPU_MAX_DEVICES ? 0 : count;
	for (unsigned int i = 0; i < launches->count; i++)
		launch_begins(p, &launches->each[i], list[i].hStream);
}

static CUresult launches_end(struct vgpu_process *p, struct launches *launches, CUresult result)
{
	while (launches->count > 0)
		launch_ends(p, &launches->each[--launches->count], result);
	return result;
}

#define WRAP_LAUNCH_SEVERAL(symbol, params, args, list, count)                                  \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol);                                                                  \
		struct launches launches;                                                       \
                                                                                                \
		launches_begin(p, &launches, list, count);                                      \
		return launches_end(p, &launches, real args);                                   \
	}

#endif

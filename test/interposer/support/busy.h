/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A step with a share of the GPU's time, and kernels that use it up: of the simulated driver, as long as they
 * are told. */
#ifndef VGPU_TEST_BUSY_H
#define VGPU_TEST_BUSY_H

#include "harness.h"

/* A job for each case: what was used stands in its ledger. */
static inline struct step step_with_share(uint32_t job, unsigned percent)
{
	struct step step = step_make(job, 0, 1000, 1000);

	step.limits->device[0].sm_percent = step.limits->device[0].job_sm_percent = percent;
	return step;
}

static inline CUfunction busy_kernel(void)
{
	CUmodule module;
	CUfunction function = NULL;

	CHECK(cuModuleLoadData(&module, ".visible .entry simgpu_busy_us(.param .u32 us)") == CUDA_SUCCESS);
	CHECK(cuModuleGetFunction(&function, module, "simgpu_busy_us") == CUDA_SUCCESS);
	return function;
}

/* Each length has a shape of its own. */
static inline void busy(CUfunction function, unsigned us, CUstream stream)
{
	void *params[] = {&us};

	CHECK_IS(cuLaunchKernel(function, 1 + us, 1, 1, 32, 1, 1, 0, stream, params, NULL), CUDA_SUCCESS);
}

#endif

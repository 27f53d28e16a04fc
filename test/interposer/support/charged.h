/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A step on GPUs whose contexts cost something, and what it is charged. */
#ifndef VGPU_TEST_CHARGED_H
#define VGPU_TEST_CHARGED_H

#include "harness.h"

#include <time.h>

static struct step step;

static inline uint64_t used(void)
{
	return step_used_bytes(&step);
}

static inline void begin_without_cuda(uint64_t step_mib, unsigned int context_mib)
{
	gpus(context_mib);
	step = step_make(100 + (uint32_t)getpid(), 0, step_mib, step_mib);
}

static inline void begin(uint64_t step_mib, unsigned int context_mib)
{
	begin_without_cuda(step_mib, context_mib);
	cuda_begin(0);
}

static inline void wait_ms(long ms)
{
	struct timespec left = {ms / 1000, ms % 1000 * 1000000};

	while (nanosleep(&left, &left) != 0)
		;
}

#endif

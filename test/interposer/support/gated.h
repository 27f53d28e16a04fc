/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A step with a share, memory to fill and to copy, and whether a call is held back. */
#ifndef VGPU_TEST_GATED_H
#define VGPU_TEST_GATED_H

#include "busy.h"

static struct step step;
static CUdeviceptr a, b;	/* 16 MiB each */
static CUdeviceptr_v1 low_a, low_b; /* the same, for the functions with 32-bit pointers */
static CUstream stream;

/* GPU memory that is filled and copied at 4 GB/s: a MiB takes 262 µs. devices: that the step has slices
 * of. */
static inline void gated_step(uint32_t job, unsigned percent, uint32_t devices)
{
	gpus(0);
	gpus_also("memory_gb_s=4");
	step = step_with_share(job, percent);
	step.limits->device[1] = step.limits->device[0];
	strcpy(step.limits->device[1].uuid, UUID1);
	step.limits->device_count = devices;
}

static inline void gated_cuda(void)
{
	cuda_begin(0);
	CHECK(cuMemAlloc_v2(&a, 16 * MIB) == CUDA_SUCCESS && cuMemAlloc_v2(&b, 16 * MIB) == CUDA_SUCCESS);
	CHECK(cuMemAlloc(&low_a, 16 * MIB) == CUDA_SUCCESS && cuMemAlloc(&low_b, 16 * MIB) == CUDA_SUCCESS);
	CHECK(cuStreamCreate(&stream, 0) == CUDA_SUCCESS);
}

static inline void begin(uint32_t job, unsigned percent)
{
	gated_step(job, percent, 1);
	gated_cuda();
}

/* Keeps the share used up while it calls; whether it was made to wait. */
#define WAITS(call, times)                                                                             \
	({                                                                                             \
		uint64_t before_, is_;                                                                 \
		is_ = before_ = __atomic_load_n(&step.ledger->waited_ns[0], __ATOMIC_RELAXED);         \
		for (int i_ = 0; i_ < (times) && is_ == before_; i_++) {                               \
			__atomic_store_n(&step.ledger->share_free_at_ns[0], now_ns() + 20000000, __ATOMIC_RELAXED); \
			CHECK_IS(call, CUDA_SUCCESS);                                                  \
			is_ = __atomic_load_n(&step.ledger->waited_ns[0], __ATOMIC_RELAXED);           \
		}                                                                                      \
		is_ != before_;                                                                        \
	})
#define CHECK_GATED(call)                                                                              \
	do {                                                                                           \
		if (!WAITS(call, 300))                                                                 \
			fprintf(stderr, "%s:%d: %s did not wait\n", __FILE__, __LINE__, #call), failures++; \
	} while (0)
#define CHECK_FREE(call)                                                                               \
	do {                                                                                           \
		if (WAITS(call, 100))                                                                  \
			fprintf(stderr, "%s:%d: %s waited\n", __FILE__, __LINE__, #call), failures++;  \
	} while (0)

#endif

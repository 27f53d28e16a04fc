/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A clock that is read without touching memory, roughly the same on all cores: the time stamp counter, or
 * what else the processor has. For what need not be known to less than a factor of two. */
#ifndef VGPU_BASE_TICKS_H
#define VGPU_BASE_TICKS_H

#include <stdint.h>

#if defined(__x86_64__)
static inline uint64_t vgpu_ticks(void)
{
	return __builtin_ia32_rdtsc();
}

/* How many it really is takes long to find out: of one that runs at 1 to 5 GHz. */
static inline uint64_t vgpu_ticks_per_second(void)
{
	return 1ull << 31;
}
#elif defined(__aarch64__)
static inline uint64_t vgpu_ticks(void)
{
	uint64_t ticks;

	__asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
	return ticks;
}

static inline uint64_t vgpu_ticks_per_second(void)
{
	uint64_t ticks;

	__asm__("mrs %0, cntfrq_el0" : "=r"(ticks));
	return ticks;
}
#endif

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A clock that is read without touching memory, roughly the same on all cores: the time stamp counter, or what
 * else the processor has. For what need not be known to less than a factor of two. */
#ifndef VGPU_TICKS_H
#define VGPU_TICKS_H

/* VGPU_FREE_TICKS: some 25 ms. How many ticks that is x86 does not tell quickly; at 1 to 5 GHz it is 67 to 13. */
#if defined(__x86_64__)
#define VGPU_FREE_TICKS 0x4000000
#define VGPU_TICKS(ticks) ((ticks) = __builtin_ia32_rdtsc())
#elif defined(__aarch64__)
#define VGPU_FREE_SHIFT 5 /* of the ticks per second */
#define VGPU_TICKS(ticks) __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks))
#endif

#ifndef __ASSEMBLER__
#include <stdint.h>

static inline uint64_t vgpu_ticks(void)
{
	uint64_t ticks;

	VGPU_TICKS(ticks);
	return ticks;
}

static inline uint64_t vgpu_free_ticks(void)
{
#ifdef VGPU_FREE_TICKS
	return VGPU_FREE_TICKS;
#else
	uint64_t per_second;

	__asm__("mrs %0, cntfrq_el0" : "=r"(per_second));
	return per_second >> VGPU_FREE_SHIFT;
#endif
}
#endif

#endif

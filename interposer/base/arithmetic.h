/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Sums of bytes and times that never wrap around: what would, stays at the end of the range. */
#ifndef VGPU_BASE_ARITHMETIC_H
#define VGPU_BASE_ARITHMETIC_H

#include <stdint.h>

static inline uint64_t vgpu_larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t vgpu_smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t vgpu_plus(uint64_t a, uint64_t b)
{
	uint64_t sum;

	return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static inline uint64_t vgpu_minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

static inline uint64_t vgpu_times(uint64_t a, uint64_t b)
{
	uint64_t product;

	return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* To a multiple of a number other than 0. */
static inline uint64_t vgpu_round_up(uint64_t value, uint64_t to)
{
	return value > UINT64_MAX - to ? value : (value + to - 1) / to * to;
}

#endif

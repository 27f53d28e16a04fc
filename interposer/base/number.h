/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Decimal numbers. Not by the C library's functions: what is built with glibc 2.38 or later has those under
 * names that earlier ones lack, and could not be loaded into a program of an older system then. */
#ifndef VGPU_BASE_NUMBER_H
#define VGPU_BASE_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Reads digits, and steps over them. False, with nothing changed, where there is none or the number is too
 * large. */
static inline bool vgpu_number_read(const char **at, uint64_t *number)
{
	const char *digit = *at;
	uint64_t n = 0;

	for (; *digit >= '0' && *digit <= '9'; digit++) {
		if (__builtin_mul_overflow(n, 10u, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(*digit - '0'), &n))
			return false;
	}
	if (digit == *at)
		return false;
	*at = digit;
	*number = n;
	return true;
}

#endif

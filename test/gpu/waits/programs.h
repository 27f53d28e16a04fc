/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Programs whose calls only together say something. */
#ifndef VGPU_TEST_WAITS_PROGRAMS_H
#define VGPU_TEST_WAITS_PROGRAMS_H

#include "calls.h"

struct program {
	const char *name;
	CUresult (*run)(void);
};

extern const struct program programs[];
extern const unsigned programs_count;

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Driver entry points found by dlsym, so that one program runs on the real driver and on the
 * simulated one, and builds without CUDA's headers. */
#ifndef SIMGPU_DRIVER_SYMBOLS_H
#define SIMGPU_DRIVER_SYMBOLS_H

#include <stddef.h>

struct driver_symbol {
	const char *name;
	void *slot; /* the pointer to set */
};

/* The driver beside this program, else the system's. 0: a message said why not. */
int driver_symbols(const struct driver_symbol *need, size_t count);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * For the guards (guard/guard.c), which have the driver's names in its place: our function where there is
 * one. One that the driver does not have stays one that is not there. */
#include "route/lookup.h"

__attribute__((visibility("default"))) void *vgpu_guarded_function(int library, const char *name);

void *vgpu_guarded_function(int library, const char *name)
{
	void *address = vgpu_real_guarded((unsigned int)library, name);
	enum vgpu_symbol symbol = address != NULL ? vgpu_symbol_find(name) : VGPU_SYMBOLS;

	return symbol != VGPU_SYMBOLS ? vgpu_row[symbol].wrapper : address;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "driver_symbols.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* RPATH names this program's folder. The simulated library lies there only on a simulated node;
 * where it does not, the loader goes on to the system's. */
static void *open_driver(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);

	if (handle == NULL)
		fprintf(stderr, "%s: %s\n", program_invocation_short_name, dlerror());
	return handle;
}

int driver_symbols(const struct driver_symbol *need, size_t count)
{
	void *handle = open_driver();

	if (handle == NULL)
		return 0;
	for (size_t i = 0; i < count; i++) {
		void *symbol = dlsym(handle, need[i].name);

		if (symbol == NULL) {
			fprintf(stderr, "%s: the driver has no %s\n", program_invocation_short_name,
				need[i].name);
			return 0;
		}
		memcpy(need[i].slot, &symbol, sizeof(symbol));
	}
	return 1;
}

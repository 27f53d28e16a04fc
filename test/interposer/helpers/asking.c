/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library that looks a name up; see route/route.c. */
#include <dlfcn.h>

void *look_up(void *handle, const char *name);

void *look_up(void *handle, const char *name)
{
	void *volatile found = dlsym(handle, name); /* called from here, not jumped to */

	return found;
}

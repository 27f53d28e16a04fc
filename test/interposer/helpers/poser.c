/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A library of anybody's that looks names up. route/loaded.c loads it by the names of others. */
#include <dlfcn.h>

void *pose(void *handle, const char *name)
{
	return dlsym(handle, name);
}

void *pose_versioned(void *handle, const char *name, const char *version)
{
	return dlvsym(handle, name, version);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "api.h"

#include <dlfcn.h>
#include <stdio.h>

struct cuda_api cu;

#ifdef PATHS_LINKED
/* cuda.h has these under other names or not at all, depending on its age. */
#define DECLARE(name, params) extern __typeof__(*cu.name) linked_##name __asm__(#name) __attribute__((weak));
CUDA_FUNCTIONS(DECLARE)
#define FIND(library, name) ((void)(library), (void *)linked_##name)
#define OPEN() NULL
#else
#define FIND(library, name) dlsym(library, #name)
#define OPEN() dlopen("libcuda.so.1", RTLD_NOW)
#endif

bool cuda_load(void)
{
	void *library = OPEN();

#ifndef PATHS_LINKED
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return false;
	}
#endif
#define RESOLVE(name, params) *(void **)&cu.name = FIND(library, name);
	CUDA_FUNCTIONS(RESOLVE)
	return cu.cuInit != NULL;
}

CUresult cuda_begin(CUdevice *device)
{
	CUcontext context;
	CUresult result = cu.cuInit(0);

	if (result == CUDA_SUCCESS)
		result = cu.cuDeviceGet(device, 0);
	if (result == CUDA_SUCCESS)
		result = cu.cuDevicePrimaryCtxRetain(&context, *device);
	return result != CUDA_SUCCESS ? result : cu.cuCtxSetCurrent(context);
}

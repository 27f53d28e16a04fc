/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "calls.h"
#include "spin.h"

#include <dlfcn.h>
#include <stdio.h>

/* Loops in a microsecond, some (H200 at 1980 MHz: each takes 10 cycles). */
#define LOOPS_PER_US 200u

struct driver cu;
CUcontext context;
CUfunction spin;

bool cuda_load(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	if (library == NULL) {
		fprintf(stderr, "waits: %s\n", dlerror());
		return false;
	}
#define RESOLVE(name, params) *(void **)&cu.name = dlsym(library, #name);
	DRIVER_FUNCTIONS(RESOLVE)
	return cu.cuInit != NULL;
}

CUresult cuda_begin(void)
{
	CUmodule module;
	CUdevice device;

	TRY(cu.cuInit(0));
	TRY(cu.cuDeviceGet(&device, 0));
	TRY(cu.cuDevicePrimaryCtxRetain(&context, device));
	TRY(cu.cuCtxSetCurrent(context));
	TRY(cu.cuModuleLoadData(&module, SPIN_TEXT));
	return cu.cuModuleGetFunction(&spin, module, SPIN_NAME);
}

CUresult launch(CUfunction function, unsigned us, CUstream stream)
{
	unsigned loops = us * LOOPS_PER_US;
	void *params[] = {&us, &loops};

	/* Each length has a shape of its own. */
	return cu.cuLaunchKernel(function, 1, 1 + us % 16, 1, 32, 1, 1, 0, stream, params, NULL);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "spin.h"

#include <dlfcn.h>
#include <stdio.h>

#define NO_DRIVER 3

struct driver cu;

int driver_begin(CUcontext *context, CUfunction *spin)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	CUmodule module;
	CUdevice device;
	int error;

	if (library == NULL) {
		fprintf(stderr, "load: %s\n", dlerror());
		return NO_DRIVER;
	}
#define RESOLVE(name, params)                                                                          \
	*(void **)&cu.name = dlsym(library, #name);                                                    \
	if (cu.name == NULL) {                                                                         \
		fprintf(stderr, "load: this driver has no %s\n", #name);                               \
		return NO_DRIVER;                                                                      \
	}
	DRIVER_FUNCTIONS(RESOLVE)
	*(void **)&cu.cuMemcpyBatchAsync_v2 = dlsym(library, "cuMemcpyBatchAsync_v2");
	error = (int)cu.cuInit(0);
	if (error == 0)
		error = (int)cu.cuDeviceGet(&device, 0);
	if (error == 0)
		error = (int)cu.cuDevicePrimaryCtxRetain(context, device);
	if (error == 0)
		error = (int)cu.cuCtxSetCurrent(*context);
	if (error == 0)
		error = (int)cu.cuModuleLoadData(&module, SPIN_TEXT);
	return error != 0 ? error : (int)cu.cuModuleGetFunction(spin, module, SPIN_NAME);
}

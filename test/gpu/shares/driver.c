/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"

#include <dlfcn.h>
#include <stdio.h>

#define NO_DRIVER 3

struct driver cu;

/* Each step needs the one before it, so the number of loops is the length, by the GPU's clock: unlike
 * a kernel that waits for a time, it takes as long however often it is interrupted. */
static const char spin_text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .global .align 4 .u32 sink;\n"
	".visible .entry simgpu_busy_us(.param .u32 us, .param .u32 loops)\n"
	"{\n"
	".reg .u32 %r<4>;\n.reg .pred %p<3>;\n"
	"ld.param.u32 %r1, [loops];\n"
	"mov.u32 %r2, %tid.x;\n"
	"LOOP:\n"
	"mad.lo.u32 %r2, %r2, 1664525, 1013904223;\n"
	"sub.u32 %r1, %r1, 1;\n"
	"setp.ne.u32 %p1, %r1, 0;\n"
	"@%p1 bra LOOP;\n"
	"setp.ne.u32 %p2, %r2, 12345;\n"
	"@%p2 bra END;\n"
	"st.global.u32 [sink], %r2;\n"
	"END:\n"
	"ret;\n"
	"}\n";

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
		error = (int)cu.cuModuleLoadData(&module, spin_text);
	return error != 0 ? error : (int)cu.cuModuleGetFunction(spin, module, "simgpu_busy_us");
}

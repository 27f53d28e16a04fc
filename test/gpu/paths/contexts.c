/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Memory that nobody asks for by its size: contexts, modules' variables, heaps and stacks. */
#include "parts.h"

#include <stdio.h>

#define MOST_CONTEXTS 512
#define STACK_STEP 1024u /* bytes per thread */

static CUcontext context[MOST_CONTEXTS];
static unsigned int contexts;

static int take_context(uint64_t bytes)
{
	CUresult result;

	(void)bytes;
	if (contexts == MOST_CONTEXTS)
		return PATH_BROKEN;
	result = cu.cuCtxCreate_v2(&context[contexts], 0, the_device);
	if (result == CUDA_SUCCESS)
		contexts++;
	return (int)result;
}

static void give_contexts(void)
{
	while (contexts > 0)
		cu.cuCtxDestroy_v2(context[--contexts]);
}

/* Variables are at most 1 GiB each, as some assemblers count their size in 32 bits. */
#define VARIABLE (1024 * MIB)
#define MOST_VARIABLES 160

static CUmodule module;

static int take_module(uint64_t bytes)
{
	static char text[200 + MOST_VARIABLES * 64];
	char name[32];
	CUdeviceptr pointer;
	size_t size;
	int used = snprintf(text, sizeof(text), ".version 7.0\n.target sm_70\n.address_size 64\n");
	int error;

	for (int i = 0; bytes > 0 && i < MOST_VARIABLES; i++) {
		uint64_t part = bytes < VARIABLE ? bytes : VARIABLE;

		used += snprintf(text + used, sizeof(text) - (size_t)used,
				 ".visible .global .align 16 .b8 big%d[%llu];\n", i,
				 (unsigned long long)part);
		bytes -= part;
	}
	error = (int)cu.cuModuleLoadData(&module, text);
	snprintf(name, sizeof(name), "big0");
	/* Loading may be lazy; asking for a variable is not. */
	if (error == 0 && (error = (int)cu.cuModuleGetGlobal_v2(&pointer, &size, module, name)) != 0)
		cu.cuModuleUnload(module);
	return error;
}

static void give_module(void)
{
	cu.cuModuleUnload(module);
}

static const char heap_text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".extern .func (.param .b64 out) malloc (.param .b64 size);\n"
	".visible .entry use(.param .u64 where)\n{\n.reg .b64 %rd<4>;\n"
	"ld.param.u64 %rd3, [where];\nmov.u64 %rd1, 64;\n"
	"{ .param .b64 size; .param .b64 out; st.param.b64 [size], %rd1; call.uni (out), malloc, (size); ld.param.b64 %rd2, [out]; }\n"
	"st.global.u64 [%rd3], %rd2;\nret;\n}\n";

static const char stack_text[] =
	".version 7.0\n.target sm_70\n.address_size 64\n"
	".visible .entry use(.param .u64 where)\n{\n.local .align 8 .b8 room[512];\n.reg .b64 %rd<5>;\n"
	"ld.param.u64 %rd3, [where];\nmov.u64 %rd1, room;\nand.b64 %rd4, %rd3, 248;\n"
	"add.s64 %rd1, %rd1, %rd4;\nst.local.u64 [%rd1], %rd3;\nld.local.u64 %rd2, [%rd1];\nst.global.u64 [%rd3], %rd2;\nret;\n}\n";

static uint64_t threads; /* that the device can have resident */

static int start_limits(void)
{
	int processors = 0, each = 0;

	NEEDS(cuCtxSetLimit);
	NEEDS(cuModuleLoadData);
	cu.cuDeviceGetAttribute(&processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, the_device);
	cu.cuDeviceGetAttribute(&each, CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, the_device);
	threads = (uint64_t)processors * (uint64_t)each;
	return threads > 0 ? 0 : PATH_BROKEN;
}

static int run_one(const char *text)
{
	CUmodule loaded;
	CUfunction function;
	CUdeviceptr where;
	void *params[] = { &where };
	int error;

	if ((error = (int)cu.cuModuleLoadData(&loaded, text)) != 0)
		return error;
	if ((error = (int)cu.cuModuleGetFunction(&function, loaded, "use")) == 0 &&
	    (error = (int)cu.cuMemAlloc_v2(&where, 4096)) == 0)
		error = (int)cu.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, params, NULL);
	return error != 0 ? error : (int)cu.cuCtxSynchronize();
}

/* A heap cannot be resized once it is there, so each try has a context of its own. */
static int take_limit(CUlimit limit, uint64_t value, const char *text)
{
	int error = (int)cu.cuCtxCreate_v2(&context[0], 0, the_device);

	if (error != 0)
		return error;
	if ((error = (int)cu.cuCtxSetLimit(limit, value)) == 0)
		error = run_one(text);
	if (error != 0)
		cu.cuCtxDestroy_v2(context[0]);
	/* The driver has its own error for a launch that finds no room for a stack or heap. */
	return error == CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES ? CUDA_ERROR_OUT_OF_MEMORY : error;
}

static int take_heap(uint64_t bytes)
{
	return take_limit(CU_LIMIT_MALLOC_HEAP_SIZE, bytes, heap_text);
}

static int take_stack(uint64_t bytes)
{
	uint64_t each = bytes / threads / STACK_STEP * STACK_STEP;

	return take_limit(CU_LIMIT_STACK_SIZE, each < STACK_STEP ? STACK_STEP : each, stack_text);
}

static void give_context(void)
{
	cu.cuCtxDestroy_v2(context[0]);
}

struct path context_paths[] = {
	{ .name = "cuCtxCreate, one after another", .granule = 512 * MIB, .flags = PATH_FILL | PATH_NO_CONTEXT, .start = start_limits, .take = take_context,
	  .give = give_contexts },
	{ .name = "module with big variables", .granule = 32 * MIB, .most = MOST_VARIABLES * VARIABLE, .start = start_limits, .take = take_module, .give = give_module },
	{ .name = "cuCtxSetLimit heap", .granule = 64 * MIB, .flags = PATH_NO_CONTEXT, .start = start_limits, .take = take_heap, .give = give_context },
	{ .name = "cuCtxSetLimit stack", .granule = 132 * 2048 * STACK_STEP, .flags = PATH_NO_CONTEXT, .start = start_limits, .take = take_stack, .give = give_context },
	{ .name = NULL },
};

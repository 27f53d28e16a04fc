/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What contexts grow by because of kernels: by what these take when they are first launched, and by
 * their heaps and stacks. */
#include "charged.h"

#define AT_LAUNCH "kernel simgpu_launch_mib=64"

static CUfunction kernel_of(const char *image)
{
	CUfunction f;
	CUmodule m;

	CHECK_IS(cuModuleLoadData(&m, image), CUDA_SUCCESS);
	CHECK_IS(cuModuleGetFunction(&f, m, "kernel"), CUDA_SUCCESS);
	return f;
}

static void run(CUfunction f)
{
	CHECK_IS(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
}

static void run_something_new(void)
{
	CUfunction f = kernel_of(AT_LAUNCH);

	run(kernel_of("kernel")); /* the first launch is looked after at once, this is not the one */
	cuCtxSynchronize();
	run(f);
	wait_ms(120);
}

static void what_the_first_launch_takes_is_charged_at_once(void)
{
	CUdeviceptr a;
	CUfunction f;

	begin(1000, 100);
	for (uint64_t n = 0; n < 3; n++) {
		f = kernel_of(AT_LAUNCH);
		CHECK_IS(cuMemAlloc_v2(&a, 2 * MIB), CUDA_SUCCESS); /* looks, and finds nothing yet */
		CHECK_IS(used(), (102 + 68 * n) * MIB);
		run(f);
		CHECK_IS(cuMemAlloc_v2(&a, 2 * MIB), CUDA_SUCCESS);
		CHECK_IS(used(), (168 + 68 * n) * MIB);
		CHECK_IS(driver_used_bytes(0), used());
	}
}

static unsigned int times_asked(void)
{
	unsigned int times = 0;

	CHECK_IS(nvmlSimAsked(&times), NVML_SUCCESS);
	return times;
}

/* Asking takes long, and such a program does nothing else for days: steps, and at the end of each a wait. It
 * looks its functions up each time, as cuDNN does. */
static void nvml_is_not_asked_about_a_program_that_loads_nothing_more(void)
{
	CUfunction late, function;
	CUlibrary library;
	unsigned int before;
	CUkernel kernel;

	begin(1000, 100);
	late = kernel_of(AT_LAUNCH);
	CHECK_IS(cuLibraryLoadData(&library, "kernel", NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_IS(cuLibraryGetKernel(&kernel, library, "kernel"), CUDA_SUCCESS);
	CHECK_IS(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
	before = times_asked();
	for (time_t until = time(NULL) + 3; time(NULL) < until;) {
		CHECK_IS(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
		run(function);
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
		wait_ms(1);
	}
	CHECK(times_asked() - before <= 1);
	/* All the same what a launch makes the driver take is found, within a second. */
	CHECK_IS(used(), 100 * MIB);
	run(late);
	for (int steps = 0; used() == 100 * MIB && steps < 2000; steps++) {
		CHECK_IS(cuCtxSynchronize(), CUDA_SUCCESS);
		wait_ms(1);
	}
	CHECK_IS(used(), 164 * MIB);
}

/* Nothing but the launch says that the driver takes more, and only the first one after a load is looked
 * at. */
static void what_a_launch_takes_is_charged_by_whatever_comes_next(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUDA_ARRAY_DESCRIPTOR flat = {1024, 1024, CU_AD_FORMAT_FLOAT, 1};
	CUmemGenericAllocationHandle handle;
	size_t free_bytes, total_bytes, pitch;
	uint64_t want = 100 * MIB;
	CUdeviceptr a;
	CUarray array;

	begin(2000, 100);
#define CHECK_CAUGHT_UP(call, more_mib)                 \
	do {                                            \
		run_something_new();                    \
		CHECK_IS(call, CUDA_SUCCESS);           \
		want += (64 + (more_mib)) * MIB;        \
		CHECK_IS(used(), want);                 \
		CHECK_IS(driver_used_bytes(0), want);   \
	} while (0)
	CHECK_CAUGHT_UP(cuMemAlloc_v2(&a, 2 * MIB), 2);
	CHECK_CAUGHT_UP(cuMemAllocPitch_v2(&a, &pitch, 2048, 1024, 4), 2);
	CHECK_CAUGHT_UP(cuMemCreate(&handle, 2 * MIB, &prop, 0), 2);
	CHECK_CAUGHT_UP(cuArrayCreate_v2(&array, &flat), 4);
	CHECK_CAUGHT_UP(cuCtxSynchronize(), 0);
	CHECK_CAUGHT_UP(cuStreamSynchronize(NULL), 0);
	CHECK_CAUGHT_UP(cuMemGetInfo_v2(&free_bytes, &total_bytes), 0);
	CHECK_IS(free_bytes, 2000 * MIB - want);
	CHECK_CAUGHT_UP(cuMemAllocAsync(&a, 2 * MIB, NULL), 32);
}

/* What is free is remembered for a millisecond, and what this process is charged meanwhile counted in. */
static void what_is_found_late_is_not_counted_twice(void)
{
	size_t free_bytes, total_bytes;
	CUfunction f;

	begin(8000, 100);
	f = kernel_of(AT_LAUNCH);
	run(kernel_of("kernel"));
	cuCtxSynchronize();
	run(f); /* nobody looks */
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	kernel_of("kernel");
	CHECK_IS(used(), 164 * MIB);
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, total_bytes - 164 * MIB);
	CHECK_IS(driver_used_bytes(0), 164 * MIB);
}

static void what_a_launch_takes_beyond_the_limit_is_charged_too(void)
{
	size_t free_bytes, total_bytes;
	CUdeviceptr a, b;

	begin(200, 100);
	CHECK_IS(cuMemAlloc_v2(&a, 60 * MIB), CUDA_SUCCESS);
	run_something_new();
	CHECK_IS(cuMemAlloc_v2(&b, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 224 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	CHECK_IS(free_bytes, 0);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&b, 36 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, 2 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
}

static void heaps_and_stacks_of_kernels_are_charged(void)
{
	size_t value;
	CUfunction f;
	CUmodule m;

	begin(1000, 100);
	CHECK_IS(cuModuleLoadData(&m, "kernel"), CUDA_SUCCESS);
	CHECK_IS(cuModuleGetFunction(&f, m, "kernel"), CUDA_SUCCESS);
	/* These are there after a launch, which nobody looks at. */
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 208 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 450 * MIB);
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, 101 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 550 * MIB);
	CHECK_IS(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL), CUDA_SUCCESS);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuModuleLoadData(&m, "kernel simgpu_module_mib=64"), CUDA_SUCCESS);
	CHECK_IS(cuModuleUnload(m), CUDA_SUCCESS);
	CHECK_IS(used(), 550 * MIB);
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 1208 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
	CHECK_IS(value, 208 * MIB);
	CHECK_IS(used(), 550 * MIB);
	/* The stacks are there at once. */
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048), CUDA_SUCCESS);
	CHECK_IS(used(), 814 * MIB);
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 8192), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
	CHECK_IS(value, 2048);
	CHECK_IS(used(), 814 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
	CHECK(cuCtxSetLimit(77, 1) != CUDA_SUCCESS);
	CHECK_IS(used(), 550 * MIB);
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 8 * MIB), CUDA_SUCCESS);
	CHECK(used() >= driver_used_bytes(0));
	CHECK_IS(cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* What the driver refuses is not there later either, nor what was taken back before anything was launched. */
static void a_heap_that_does_not_come_is_not_charged(void)
{
	size_t value;

	begin(800, 100);
	CHECK_IS(cuSimFailNext(1), CUDA_SUCCESS);
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 308 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(cuCtxGetLimit(&value, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
	CHECK(value < 308 * MIB);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 308 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 550 * MIB);
	CHECK_IS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, value), CUDA_SUCCESS);
	CHECK_IS(used(), driver_used_bytes(0));
	CHECK_IS(used(), 100 * MIB);
}

/* A context that comes and goes takes its heap with it, made or not. */
static void heaps_end_with_their_context(void)
{
	CUcontext context;

	begin(800, 100);
	for (int i = 0; i < 5; i++) {
		CHECK_IS(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
		CHECK_IS(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 308 * MIB), CUDA_SUCCESS);
		CHECK_IS(used(), 650 * MIB);
		CHECK_IS(cuCtxDestroy_v2(context), CUDA_SUCCESS);
		CHECK_IS(used(), 100 * MIB);
	}
}

int main(void)
{
	gpus(0);
	CASE(what_the_first_launch_takes_is_charged_at_once);
	CASE(nvml_is_not_asked_about_a_program_that_loads_nothing_more);
	CASE(what_a_launch_takes_is_charged_by_whatever_comes_next);
	CASE(what_is_found_late_is_not_counted_twice);
	CASE(what_a_launch_takes_beyond_the_limit_is_charged_too);
	CASE(heaps_and_stacks_of_kernels_are_charged);
	CASE(heaps_end_with_their_context);
	CASE(a_heap_that_does_not_come_is_not_charged);
	return summary();
}

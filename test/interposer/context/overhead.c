/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What contexts grow by: modules and libraries. */
#include "charged.h"

#include <pthread.h>

CUresult cuMemPrefetchAsync(CUdeviceptr pointer, size_t bytes, CUdevice device, CUstream stream);

#define MODULE "kernel simgpu_module_mib=64"
#define LAZY "kernel simgpu_lazy_mib=64"

static const char *file_with(const char *text)
{
	static char path[300];
	FILE *file;

	snprintf(path, sizeof(path), "%s/module", getenv("VGPU_TEST_ROOT"));
	file = fopen(path, "w");
	fputs(text, file);
	fclose(file);
	return path;
}

static void every_way_to_load_a_module_is_charged(void)
{
	CUmodule m;
	CUlibrary l;

	begin(600, 100);
#define CHECK_LOAD(load, unload)                        \
	do {                                            \
		CHECK_IS(load, CUDA_SUCCESS);           \
		CHECK_IS(used(), 164 * MIB);            \
		CHECK_IS(driver_used_bytes(0), used()); \
		CHECK_IS(unload, CUDA_SUCCESS);         \
		CHECK_IS(used(), 100 * MIB);            \
	} while (0)
	CHECK_LOAD(cuModuleLoad(&m, file_with(MODULE)), cuModuleUnload(m));
	CHECK_LOAD(cuModuleLoadData(&m, MODULE), cuModuleUnload(m));
	CHECK_LOAD(cuModuleLoadDataEx(&m, MODULE, 0, NULL, NULL), cuModuleUnload(m));
	CHECK_LOAD(cuModuleLoadFatBinary(&m, MODULE), cuModuleUnload(m));
	CHECK_LOAD(cuLibraryLoadData(&l, MODULE, NULL, NULL, 0, NULL, NULL, 0), cuLibraryUnload(l));
	CHECK_LOAD(cuLibraryLoadFromFile(&l, file_with(MODULE), NULL, NULL, 0, NULL, NULL, 0),
		   cuLibraryUnload(l));
}

static void a_module_that_does_not_fit_is_refused_and_unloaded(void)
{
	CUdeviceptr a;
	CUlibrary l;
	CUmodule m;

	begin(200, 100);
	CHECK_IS(cuMemAlloc_v2(&a, 50 * MIB), CUDA_SUCCESS);
	stderr_catch();
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK(strstr(stderr_caught(), "64 MiB asked for, 150 of 200 MiB in use by this step") != NULL);
	CHECK_IS(cuLibraryLoadData(&l, MODULE, NULL, NULL, 0, NULL, NULL, 0), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 150 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(step.ledger->refusals[0], 2);
	CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 164 * MIB);
}

static void small_modules_do_not_ask_each_time_but_are_charged(void)
{
	CUmodule m;

	begin(600, 100);
	for (int i = 0; i < 20; i++)
		CHECK_IS(cuModuleLoadData(&m, "kernel simgpu_module_mib=2"), CUDA_SUCCESS);
	CHECK_IS(used(), 140 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
}

static void what_is_loaded_lazily_is_charged_later(void)
{
	CUdeviceptr variable;
	size_t bytes;
	CUfunction f;
	CUkernel k;
	CUlibrary l;
	CUmodule m;

	begin(300, 100);
	CHECK_IS(cuModuleLoadData(&m, LAZY), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	wait_ms(110);
	CHECK_IS(cuModuleGetFunction(&f, m, "kernel"), CUDA_SUCCESS);
	CHECK_IS(used(), 164 * MIB);
	CHECK_IS(cuLibraryLoadData(&l, LAZY, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_IS(cuLibraryGetKernel(&k, l, "kernel"), CUDA_SUCCESS);
	wait_ms(110);
	CHECK_IS(cuKernelGetFunction(&f, k), CUDA_SUCCESS);
	CHECK_IS(used(), 228 * MIB);
	CHECK_IS(cuLibraryLoadData(&l, LAZY, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_IS(cuLibraryGetModule(&m, l), CUDA_SUCCESS);
	CHECK_IS(cuLibraryGetKernel(&k, l, "kernel"), CUDA_SUCCESS);
	wait_ms(110);
	CHECK_IS(cuLibraryGetModule(&m, l), CUDA_SUCCESS);
	CHECK_IS(used(), 292 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuModuleUnload(m), CUDA_SUCCESS);
	CHECK_IS(used(), 228 * MIB);
	CHECK_IS(cuLibraryLoadData(&l, LAZY, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	wait_ms(110);
	CHECK_IS(cuLibraryGetGlobal(&variable, &bytes, l, "kernel"), CUDA_SUCCESS);
	CHECK_IS(used(), 292 * MIB);
	CHECK_IS(cuLibraryUnload(l), CUDA_SUCCESS);
	CHECK_IS(cuLibraryLoadData(&l, LAZY, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	wait_ms(110);
	CHECK_IS(cuLibraryGetManaged(&variable, &bytes, l, "kernel"), CUDA_SUCCESS);
	CHECK_IS(used(), 292 * MIB);
	/* The one that does not fit. */
	CHECK_IS(cuModuleLoadData(&m, LAZY), CUDA_SUCCESS);
	wait_ms(110);
	CHECK_IS(cuModuleGetFunction(&f, m, "kernel"), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 292 * MIB);
}

/* The same of what asks for a function or a variable of a module that is loaded lazily. */
static void whatever_loads_the_rest_is_charged(void)
{
	CUdeviceptr_v1 low;
	CUdeviceptr variable;
	unsigned int low_bytes;
	CUfunction f;
	CUkernel k;
	CUlibrary l;
	CUmodule m;
	size_t bytes;
	void *unified;

	begin(700, 100);
#define CHECK_LAZY(load, call, unload)               \
	do {                                         \
		CHECK_IS(load, CUDA_SUCCESS);        \
		CHECK_IS(used(), 100 * MIB);         \
		wait_ms(110);                        \
		CHECK_IS(call, CUDA_SUCCESS);        \
		CHECK_IS(used(), 164 * MIB);         \
		CHECK_IS(unload, CUDA_SUCCESS);      \
		CHECK_IS(used(), 100 * MIB);         \
	} while (0)
	CHECK_LAZY(cuModuleLoadData(&m, LAZY), cuModuleGetGlobal(&low, &low_bytes, m, "kernel"),
		   cuModuleUnload(m));
	CHECK_LAZY(cuModuleLoadData(&m, LAZY), cuModuleGetGlobal_v2(&variable, &bytes, m, "kernel"),
		   cuModuleUnload(m));
	CHECK_LAZY(cuLibraryLoadData(&l, LAZY, NULL, NULL, 0, NULL, NULL, 0),
		   cuLibraryGetUnifiedFunction(&unified, l, "kernel"), cuLibraryUnload(l));
	/* Listing functions loads none, loading one does. */
	CHECK_LAZY((cuModuleLoadData(&m, LAZY), cuModuleEnumerateFunctions(&f, 1, m)), cuFuncLoad(f),
		   cuModuleUnload(m));
	/* What was loaded before is found by the list. */
	CHECK_LAZY((cuLibraryLoadData(&l, LAZY, NULL, NULL, 0, NULL, NULL, 0),
		    cuLibraryGetKernel(&k, l, "kernel"), cuLibraryGetModule(&m, l)),
		   cuModuleEnumerateFunctions(&f, 1, m), cuLibraryUnload(l));
	/* What does not fit. */
	CHECK_IS(cuMemAlloc_v2(&variable, 550 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuModuleLoadData(&m, LAZY), CUDA_SUCCESS);
	CHECK_IS(cuModuleEnumerateFunctions(&f, 1, m), CUDA_SUCCESS);
	wait_ms(110);
	CHECK_IS(cuFuncLoad(f), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 650 * MIB);
}

static void an_allocation_finds_what_was_loaded_before(void)
{
	CUdeviceptr a;
	CUkernel k;
	CUlibrary l;

	begin(300, 100);
	CHECK_IS(cuLibraryLoadData(&l, LAZY, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_IS(cuLibraryGetKernel(&k, l, "kernel"), CUDA_SUCCESS);
	wait_ms(110);
	CHECK_IS(cuMemAlloc_v2(&a, 10 * MIB), CUDA_SUCCESS);
	CHECK_IS(used(), 174 * MIB);
	CHECK_IS(cuMemAlloc_v2(&a, 120 * MIB), CUDA_SUCCESS);
	/* 64 more are there now, of which only 6 fit. */
	CHECK_IS(cuLibraryLoadData(&l, LAZY, NULL, NULL, 0, NULL, NULL, 0), CUDA_SUCCESS);
	CHECK_IS(cuLibraryGetKernel(&k, l, "kernel"), CUDA_SUCCESS);
	wait_ms(110);
	CHECK_IS(cuMemAlloc_v2(&a, MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(used(), 358 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuLibraryUnload(l), CUDA_SUCCESS);
	CHECK_IS(cuMemAlloc_v2(&a, MIB), CUDA_SUCCESS);
}

static void growth_ends_with_its_context(void)
{
	CUcontext context;
	CUmodule m;

	begin(600, 100);
	CHECK_IS(cuCtxCreate_v2(&context, 0, 0), CUDA_SUCCESS);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 264 * MIB);
	CHECK_IS(cuCtxDestroy_v2(context), CUDA_SUCCESS);
	CHECK_IS(used(), 100 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
	CHECK_IS(cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
	CHECK_IS(used(), 0);
}

/* The driver's figure leaves managed memory out, on the device or not. It must not hide growth. */
static void growth_beside_managed_memory_is_charged_once(void)
{
	CUdeviceptr managed;
	CUmodule m;

	begin(1000, 100);
	CHECK_IS(cuMemAllocManaged(&managed, 192 * MIB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(used(), 292 * MIB);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 356 * MIB);
	CHECK_IS(cuMemPrefetchAsync(managed, 192 * MIB, 0, NULL), CUDA_SUCCESS);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 420 * MIB);
	CHECK_IS(driver_held_bytes(0), used());
	/* 256 MiB are free again, of which the module takes what looks as if it had not been allocated. */
	CHECK_IS(cuMemFree_v2(managed), CUDA_SUCCESS);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 292 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
}

static CUcontext shared_context;

static void growth_beside_small_managed_blocks_is_charged_once(void)
{
	CUdeviceptr managed, plain;
	CUmodule m;

	begin(400, 100);
	CHECK_IS(cuMemAllocManaged(&managed, 5000, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
	CHECK_IS(cuMemPrefetchAsync(managed, 5000, 0, NULL), CUDA_SUCCESS);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 166 * MIB);
	CHECK_IS(driver_held_bytes(0), used());
	CHECK_IS(cuMemFree_v2(managed), CUDA_SUCCESS);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 228 * MIB);
	CHECK_IS(driver_held_bytes(0), used());
	/* Nor is what is gone taken for managed memory, which would hide as much of other memory. */
	CHECK_IS(cuMemAlloc_v2(&plain, 50 * MIB), CUDA_SUCCESS);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 342 * MIB);
	CHECK_IS(driver_held_bytes(0), used());
}

static void *load_and_allocate(void *unused)
{
	(void)unused;
	CHECK_IS(cuCtxSetCurrent(shared_context), CUDA_SUCCESS);
	for (int i = 0; i < 50; i++) {
		CUdeviceptr a;
		CUmodule m;
		bool loaded = cuModuleLoadData(&m, "kernel simgpu_module_mib=20") == CUDA_SUCCESS;
		bool allocated = cuMemAlloc_v2(&a, 30 * MIB) == CUDA_SUCCESS;

		CHECK(step.ledger->used_bytes[0] <= 300 * MIB);
		if (allocated)
			CHECK_IS(cuMemFree_v2(a), CUDA_SUCCESS);
		if (loaded)
			CHECK_IS(cuModuleUnload(m), CUDA_SUCCESS);
	}
	return NULL;
}

static void threads_that_load_and_allocate_leave_a_true_account(void)
{
	pthread_t thread[4];
	CUmodule m;

	begin(300, 100);
	CHECK_IS(cuCtxGetCurrent(&shared_context), CUDA_SUCCESS);
	for (int i = 0; i < 4; i++)
		CHECK_IS(pthread_create(&thread[i], NULL, load_and_allocate, NULL), 0);
	for (int i = 0; i < 4; i++)
		CHECK_IS(pthread_join(thread[i], NULL), 0);
	wait_ms(110);
	CHECK_IS(cuModuleLoadData(&m, MODULE), CUDA_SUCCESS);
	CHECK_IS(used(), 164 * MIB);
	CHECK_IS(driver_used_bytes(0), used());
}

int main(void)
{
	gpus(0);
	CASE(every_way_to_load_a_module_is_charged);
	CASE(a_module_that_does_not_fit_is_refused_and_unloaded);
	CASE(small_modules_do_not_ask_each_time_but_are_charged);
	CASE(what_is_loaded_lazily_is_charged_later);
	CASE(whatever_loads_the_rest_is_charged);
	CASE(an_allocation_finds_what_was_loaded_before);
	CASE(growth_ends_with_its_context);
	CASE(growth_beside_managed_memory_is_charged_once);
	CASE(growth_beside_small_managed_blocks_is_charged_once);
	CASE(threads_that_load_and_allocate_leave_a_true_account);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "harness.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static void *driver(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);

	TRUE(handle != NULL);
	return handle;
}

TEST(lookup_gives_the_newest_function_that_is_not_newer_than_asked)
{
	static const struct {
		const char *name;
		int version;
		cuuint64_t flags;
		const char *symbol; /* NULL: none */
		CUdriverProcAddressQueryResult status;
	} rows[] = {
		{ "cuMemAlloc", 2000, 0, "cuMemAlloc", 0 },
		{ "cuMemAlloc", 3010, 0, "cuMemAlloc", 0 },
		{ "cuMemAlloc", 3020, 0, "cuMemAlloc_v2", 0 },
		{ "cuMemAlloc", 13000, 0, "cuMemAlloc_v2", 0 },
		{ "cuMemAlloc", 13000, 2, "cuMemAlloc_v2", 0 },
		{ "cuMemAlloc", 1000, 0, NULL, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT },
		{ "cuCtxCreate", 11030, 0, "cuCtxCreate_v2", 0 },
		{ "cuCtxCreate", 11040, 0, "cuCtxCreate_v3", 0 },
		{ "cuCtxCreate", 12050, 0, "cuCtxCreate_v4", 0 },
		{ "cuMemAllocAsync", 11020, 0, "cuMemAllocAsync", 0 },
		{ "cuMemAllocAsync", 11020, 1, "cuMemAllocAsync", 0 },
		{ "cuMemAllocAsync", 11020, 2, "cuMemAllocAsync_ptsz", 0 },
		{ "cuMemAllocAsync", 11010, 2, NULL, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT },
		{ "cuMemcpyHtoD", 6050, 2, "cuMemcpyHtoD_v2", 0 },
		{ "cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds", 0 },
		{ "cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz", 0 },
		{ "cuGetProcAddress", 11030, 0, "cuGetProcAddress", 0 },
		{ "cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", 0 },
		{ "cuNoSuchThing", 13000, 0, NULL, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND },
		{ "cuMemAlloc_v2", 13000, 0, NULL, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND },
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		CUdriverProcAddressQueryResult status = 9;
		void *got = &status, *old = &status;
		CUresult want = rows[i].symbol != NULL ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;

		test_row("%s %d %llu", rows[i].name, rows[i].version, rows[i].flags);
		EQ(cuGetProcAddress_v2(rows[i].name, &got, rows[i].version, rows[i].flags, &status), want);
		EQ(status, rows[i].status);
		TRUE(got == (rows[i].symbol != NULL ? dlsym(driver(), rows[i].symbol) : NULL));
		EQ(cuGetProcAddress(rows[i].name, &old, rows[i].version, rows[i].flags), want);
		TRUE(old == got);
	}
}

TEST(lookup_refuses_missing_arguments_and_unknown_flags)
{
	void *got;

	EQ(cuGetProcAddress_v2(NULL, &got, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(cuGetProcAddress_v2("cuInit", NULL, 12000, 0, NULL), CUDA_ERROR_INVALID_VALUE);
	EQ(cuGetProcAddress_v2("cuInit", &got, 12000, 8, NULL), CUDA_ERROR_INVALID_VALUE);
}

TEST(an_older_driver_does_not_know_newer_functions)
{
	void *got;

	configure("cuda_version=12040\n");
	OK(cuGetProcAddress("cuCtxCreate", &got, 13000, 0));
	TRUE(got == dlsym(driver(), "cuCtxCreate_v3"));
}

/* Calls inside the driver must not go through symbols that a preloaded library can take over. */
TEST(exports_are_the_tables_rows_and_are_bound_inside_the_library)
{
	static const char *const names[] = {
#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) #symbol,
#include "api/cuda.def"
#define VGPU_CUDA(kind, symbol, base, since, variant, params, args, ...) #symbol,
#include "extra.def"
	};
	void *got;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		TRUE(dlsym(driver(), names[i]) != NULL);
	TRUE(dlsym(driver(), "sim_cuInit") == NULL);
	TRUE(dlsym(driver(), "drv_ready") == NULL);
	OK(cuSimDlsym(driver(), "cuInit", &got));
	TRUE(got == dlsym(driver(), "cuInit"));
}

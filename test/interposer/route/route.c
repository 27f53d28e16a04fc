/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Every way to a function leads to the wrapper, and every other name stays as it was. Only under
 * LD_PRELOAD: linked in statically the library would have other ways. */
#include "asked.h"
#include "harness.h"

#include <dlfcn.h>

typedef CUresult vgpu_ask_v1(const char *name, void **function, int version, cuuint64_t flags);
typedef CUresult vgpu_ask_v2(const char *name, void **function, int version, cuuint64_t flags, int *status);

static bool is_in(const void *address, const char *library)
{
	Dl_info info;

	return address != NULL && dladdr(address, &info) != 0 && strstr(info.dli_fname, library) != NULL;
}

static const bool used_only[] = {
#define VGPU_CUDA(kind, symbol, ...) sizeof(#kind) == sizeof("USE") && #kind[0] == 'U',
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, ...) sizeof(#kind) == sizeof("USE") && #kind[0] == 'U',
#include "api/nvml.def"
};

static const struct {
	const char *symbol;
	const char *library;
} rows[] = {
#define VGPU_CUDA(kind, symbol, ...) {#symbol, "libcuda.so.1"},
#include "api/cuda.def"
#define VGPU_NVML(kind, symbol, ...) {#symbol, "libnvidia-ml.so.1"},
#include "api/nvml.def"
};

static void dlsym_of_every_row_is_the_wrapper(void)
{
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		void *library = dlopen(rows[i].library, RTLD_NOW);
		const char *where = used_only[i] ? rows[i].library : "libslurm-vgpu.so";

		CHECK(library != NULL);
		if (!is_in(dlsym(library, rows[i].symbol), where) ||
		    !is_in(dlsym(RTLD_DEFAULT, rows[i].symbol), where) ||
		    !is_in(dlsym(RTLD_NEXT, rows[i].symbol), where)) {
			fprintf(stderr, "%s is not in %s\n", rows[i].symbol, where);
			failures++;
		}
	}
}

static void linked_symbols_are_the_wrappers(void)
{
	CHECK(is_in((void *)cuMemAlloc_v2, "libslurm-vgpu.so"));
	CHECK(is_in((void *)cuMemFreeAsync, "libslurm-vgpu.so"));
	CHECK(is_in((void *)nvmlDeviceGetMemoryInfo, "libslurm-vgpu.so"));
	CHECK(is_in((void *)cuCtxGetDevice, "libcuda.so.1"));
}

static void dlvsym_keeps_its_no(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	void *libc = dlopen("libc.so.6", RTLD_NOW);

	CHECK(dlvsym(library, "cuMemAlloc_v2", "NO_SUCH_VERSION") == NULL ||
	      is_in(dlvsym(library, "cuMemAlloc_v2", "NO_SUCH_VERSION"), "libslurm-vgpu.so"));
	CHECK(dlvsym(RTLD_NEXT, "cuMemAlloc_v2", "NO_SUCH_VERSION") == NULL);
	CHECK(dlvsym(RTLD_DEFAULT, "cuMemAlloc_v2", "NO_SUCH_VERSION") == NULL);
#ifdef __x86_64__
	CHECK(dlvsym(libc, "memcpy", "GLIBC_2.2.5") != NULL);
	CHECK(dlvsym(libc, "memcpy", "GLIBC_2.14") != NULL);
	CHECK(dlvsym(libc, "memcpy", "GLIBC_9.9") == NULL);
	CHECK(dlvsym(RTLD_NEXT, "dlopen", "GLIBC_2.2.5") != NULL);
#endif
	CHECK(dlsym(libc, "memcpy") != NULL);
}

static void a_missing_name_stays_missing(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	void *libc = dlopen("libc.so.6", RTLD_NOW);
	const char *error;

	dlerror();
	CHECK(dlsym(library, "cuMemNoSuchThing") == NULL);
	CHECK(dlerror() != NULL);
	/* The C library has no CUDA. */
	CHECK(dlsym(libc, "cuMemAlloc_v2") == NULL);
	error = dlerror();
	CHECK(error != NULL && strstr(error, "cuMemAlloc_v2") != NULL);
	CHECK(dlsym(libc, "nvmlDeviceGetMemoryInfo") == NULL);
	CHECK(dlsym(RTLD_DEFAULT, "cuMemNoSuchThing") == NULL);
	CHECK(dlsym(RTLD_NEXT, "nvmlNoSuchThing") == NULL);
}

/* The program's own, behind which RTLD_NEXT has to find the C library's, again and again. */
int puts(const char *text)
{
	return fputs(text, stdout);
}

static void rtld_next_means_behind_the_caller(void)
{
	for (int i = 0; i < 1000; i++) {
		void *next = dlsym(RTLD_NEXT, "puts");

		CHECK(next != NULL && next != (void *)puts && is_in(next, "libc.so"));
		CHECK(dlsym(RTLD_DEFAULT, "puts") == (void *)puts);
		if (failures != 0)
			return;
	}
	CHECK(dlsym(RTLD_NEXT, "main") == NULL);
}

typedef CUresult get_v1(const char *name, void **function, int version, cuuint64_t flags);
typedef CUresult get_v2(const char *name, void **function, int version, cuuint64_t flags,
			CUdriverProcAddressQueryResult *status);

static void *ask(const char *name, int version, cuuint64_t flags)
{
	CUdriverProcAddressQueryResult status = (CUdriverProcAddressQueryResult)99;
	void *function = NULL;
	void *function_v1 = NULL;

	if (cuGetProcAddress_v2(name, &function, version, flags, &status) != CUDA_SUCCESS)
		function = NULL;
	CHECK_IS(status, function != NULL ? CU_GET_PROC_ADDRESS_SUCCESS : status);
	CHECK(status != (CUdriverProcAddressQueryResult)99);
	if (cuGetProcAddress(name, &function_v1, version, flags) != CUDA_SUCCESS)
		function_v1 = NULL;
	CHECK(function == function_v1);
	return function;
}

static void cuGetProcAddress_honours_version_and_flags(void)
{
	const cuuint64_t per_thread = CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	const cuuint64_t legacy = CU_GET_PROC_ADDRESS_LEGACY_STREAM;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);

	CHECK_IS(cuInit(0), CUDA_SUCCESS);
#define WRAPPED(symbol) dlsym(library, #symbol)
	CHECK(ask("cuMemAlloc", 12000, 0) == WRAPPED(cuMemAlloc_v2));
	CHECK(ask("cuMemAlloc", 3020, 0) == WRAPPED(cuMemAlloc_v2));
	CHECK(ask("cuMemAlloc", 2000, 0) == WRAPPED(cuMemAlloc));
	CHECK(ask("cuMemAllocAsync", 11020, 0) == WRAPPED(cuMemAllocAsync));
	CHECK(ask("cuMemAllocAsync", 13000, legacy) == WRAPPED(cuMemAllocAsync));
	CHECK(ask("cuMemAllocAsync", 13000, per_thread) == WRAPPED(cuMemAllocAsync_ptsz));
	CHECK(ask("cuMemFreeAsync", 13000, per_thread) == WRAPPED(cuMemFreeAsync_ptsz));
	CHECK(ask("cuMemAlloc", 13000, per_thread) == WRAPPED(cuMemAlloc_v2));
	CHECK(ask("cuMemAllocAsync", 11010, 0) == NULL);
	CHECK(ask("cuCtxCreate", 3020, 0) == WRAPPED(cuCtxCreate_v2));
	CHECK(ask("cuCtxCreate", 11040, 0) == WRAPPED(cuCtxCreate_v3));
	CHECK(ask("cuCtxCreate", 13000, 0) == WRAPPED(cuCtxCreate_v4));
	CHECK(ask("cuGetProcAddress", 11030, 0) == WRAPPED(cuGetProcAddress));
	CHECK(ask("cuGetProcAddress", 12000, 0) == WRAPPED(cuGetProcAddress_v2));
	CHECK(ask("cuDevicePrimaryCtxRelease", 12000, 0) == WRAPPED(cuDevicePrimaryCtxRelease_v2));
	CHECK(is_in(ask("cuMemGetInfo", 12000, 0), "libslurm-vgpu.so"));
	CHECK(is_in(ask("cuDriverGetVersion", 12000, 0), "libcuda.so.1"));
	CHECK(is_in(ask("cuStreamGetFlags", 12000, per_thread), "libcuda.so.1"));
	CHECK(ask("cuNoSuchThing", 12000, 0) == NULL);
}

CUresult cuSimDlsym(void *handle, const char *name, void **symbol);

static void lookups_of_the_driver_are_its_own(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	void *found = NULL;

	CHECK_IS(cuSimDlsym(library, "cuMemAlloc_v2", &found), CUDA_SUCCESS);
	CHECK(is_in(found, "libcuda.so.1"));
	CHECK(is_in(dlsym(library, "cuMemAlloc_v2"), "libslurm-vgpu.so"));
}

/* Copies the library that looks names up (asking.c) to one of this name; what it finds in the driver. */
static void *found_by(const char *name, void *driver)
{
	void *(*look_up)(void *, const char *);
	char command[1400];
	char path[600];
	void *library;

	snprintf(path, sizeof(path), "%s/%s", getenv("VGPU_TEST_ROOT"), name);
	snprintf(command, sizeof(command), "cp '%s/../test-interposer/helpers/asking.so' '%s'",
		 getenv("VGPU_TEST_SIM"), path);
	CHECK_IS(system(command), 0);
	library = dlopen(path, RTLD_NOW);
	CHECK(library != NULL);
	look_up = library != NULL ? (void *(*)(void *, const char *))dlsym(library, "look_up") : NULL;
	return look_up != NULL ? look_up(driver, "cuMemAlloc_v2") : NULL;
}

/* Any name can be had by anybody, and the driver's other libraries look up none of these functions. */
static void a_name_makes_nobody_the_driver(void)
{
	static const char *const names[] = {"libcuda.so.1",
					    "libcuda.so.580.1",
					    "libnvidia-ml.so.1",
					    "libcudadebugger.so.1",
					    "libnvidia-ptxjitcompiler.so.1",
					    "libcudart.so.12",
					    "any.so"};
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		CHECK(is_in(found_by(names[i], driver), "libslurm-vgpu.so"));
}

/* As a statically linked runtime library goes: one name by dlsym, all others through it. */
static void a_static_runtime_is_caught(void)
{
	struct step step;
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	get_v2 *get = (get_v2 *)dlsym(library, "cuGetProcAddress_v2");
	CUdriverProcAddressQueryResult status;
	CUresult (*alloc)(CUdeviceptr *, size_t);
	get_v2 *again;
	CUdeviceptr a;

	gpus(0);
	step = step_make(5, 0, 100, 100);
	cuda_begin(0);
	CHECK_IS(get("cuGetProcAddress", (void **)&again, 12000, 0, &status), CUDA_SUCCESS);
	CHECK_IS(again("cuMemAlloc", (void **)&alloc, 12000, 0, &status), CUDA_SUCCESS);
	CHECK_IS(status, CU_GET_PROC_ADDRESS_SUCCESS);
	CHECK_IS(alloc(&a, 101 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	CHECK_IS(alloc(&a, 100 * MIB), CUDA_SUCCESS);
	CHECK_IS(step.ledger->used_bytes[0], 100 * MIB);
}

/* As the runtime does it: cuGetProcAddress by dlsym of the opened driver, everything else by that. */
static void what_older_runtimes_ask_for_is_the_wrapper(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	vgpu_ask_v1 *ask_v1 = (vgpu_ask_v1 *)dlsym(library, "cuGetProcAddress");
	vgpu_ask_v2 *ask_v2 = (vgpu_ask_v2 *)dlsym(library, "cuGetProcAddress_v2");

	for (size_t i = 0; i < sizeof(asked_by_11_8) / sizeof(asked_by_11_8[0]); i++) {
		const struct asked *a = &asked_by_11_8[i];
		void *function = NULL;

		if (ask_v1(a->name, &function, a->version, a->flags) != CUDA_SUCCESS ||
		    !is_in(function, "libslurm-vgpu.so")) {
			fprintf(stderr, "11.8: %s of %d, flags %u\n", a->name, a->version, a->flags);
			failures++;
		}
	}
	for (size_t i = 0; i < sizeof(asked_by_12_4) / sizeof(asked_by_12_4[0]); i++) {
		const struct asked *a = &asked_by_12_4[i];
		void *function = NULL;
		int status = -1;

		if (ask_v2(a->name, &function, a->version, a->flags, &status) != CUDA_SUCCESS ||
		    !is_in(function, "libslurm-vgpu.so")) {
			fprintf(stderr, "12.4: %s of %d, flags %u\n", a->name, a->version, a->flags);
			failures++;
		}
	}
}

int main(void)
{
	struct step step;

	gpus(0);
	step = step_make(1, 0, 100, 100);
	(void)step;
	CASE(linked_symbols_are_the_wrappers);
	CASE(dlsym_of_every_row_is_the_wrapper);
	CASE(dlvsym_keeps_its_no);
	CASE(a_missing_name_stays_missing);
	CASE(rtld_next_means_behind_the_caller);
	CASE(cuGetProcAddress_honours_version_and_flags);
	CASE(lookups_of_the_driver_are_its_own);
	CASE(a_name_makes_nobody_the_driver);
	CASE(a_static_runtime_is_caught);
	CASE(what_older_runtimes_ask_for_is_the_wrapper);
	return summary();
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program that has not loaded the driver does not see its functions, and one that loads it later
 * does. Linked with neither library. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed;

static void check(int ok, const char *name)
{
	printf("%s %s\n", ok ? "PASS" : "FAIL", name);
	failed += !ok;
}

static int is_wrapper(void *address)
{
	Dl_info info;

	return address != NULL && dladdr(address, &info) != 0 &&
	       strstr(info.dli_fname, "libslurm-vgpu.so") != NULL;
}

/* Weak, as programs have it that can do without CUDA. */
extern int cuInit(unsigned int flags) __attribute__((weak));

int main(void)
{
	char path[512];
	void *library;
	void *self = dlopen(NULL, RTLD_NOW);

	dlerror();
	check(dlsym(RTLD_DEFAULT, "cuMemAlloc_v2") == NULL && dlerror() != NULL,
	      "no cuda by RTLD_DEFAULT without the driver");
	check(dlsym(RTLD_NEXT, "cuMemAlloc_v2") == NULL && dlerror() != NULL,
	      "no cuda by RTLD_NEXT without the driver");
	check(dlsym(self, "nvmlDeviceGetMemoryInfo") == NULL && dlerror() != NULL,
	      "no nvml in the program without the driver");
	check(cuInit == NULL || cuInit(0) == 500, "a weak reference called without the driver is not found");
	snprintf(path, sizeof(path), "%s/libcuda.so.1", getenv("VGPU_TEST_SIM"));
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	check(library != NULL && is_wrapper(dlsym(library, "cuMemAlloc_v2")),
	      "the driver loaded later is wrapped");
	if (library != NULL)
		dlclose(library);
	library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	check(library != NULL && is_wrapper(dlsym(library, "cuMemAlloc_v2")), "and again after a dlclose");
	printf("%d passed, %d failed\n", 6 - failed, failed);
	return failed != 0;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Prints the UUIDs of the GPUs that CUDA counts, and of those that NVML counts: "cuda UUID…" and "nvml
 * UUID…". Then takes a little memory of the first one, so that it is charged. */
#include <dlfcn.h>
#include <stdio.h>

static void *driver, *nvml;

#define FIND(library, name, params) int (*name) params = (int (*) params)dlsym(library, #name)

static int of_cuda(void)
{
	FIND(driver, cuInit, (unsigned int flags));
	FIND(driver, cuDeviceGetCount, (int *count));
	FIND(driver, cuDeviceGetUuid, (unsigned char uuid[16], int device));
	int count = 0, result;

	if (cuInit == NULL || cuDeviceGetCount == NULL || cuDeviceGetUuid == NULL)
		return -1;
	result = cuInit(0);
	printf("cuda");
	for (int i = 0; result == 0 && cuDeviceGetCount(&count) == 0 && i < count; i++) {
		unsigned char uuid[16] = { 0 };

		cuDeviceGetUuid(uuid, i);
		printf(" GPU");
		for (int n = 0; n < 16; n++)
			printf("%s%02x", n == 0 || n == 4 || n == 6 || n == 8 || n == 10 ? "-" : "", uuid[n]);
	}
	putchar('\n');
	return count;
}

static void of_nvml(void)
{
	FIND(nvml, nvmlInit_v2, (void));
	FIND(nvml, nvmlDeviceGetCount_v2, (unsigned int *count));
	FIND(nvml, nvmlDeviceGetHandleByIndex_v2, (unsigned int index, void **device));
	FIND(nvml, nvmlDeviceGetUUID, (void *device, char *uuid, unsigned int length));
	unsigned int count = 0;

	if (nvmlInit_v2 == NULL || nvmlInit_v2() != 0 || nvmlDeviceGetCount_v2(&count) != 0)
		count = 0;
	printf("nvml");
	for (unsigned int i = 0; i < count; i++) {
		char uuid[96] = "-";
		void *device;

		if (nvmlDeviceGetHandleByIndex_v2(i, &device) == 0)
			nvmlDeviceGetUUID(device, uuid, sizeof(uuid));
		printf(" %s", uuid);
	}
	putchar('\n');
}

int main(void)
{
	driver = dlopen("libcuda.so.1", RTLD_NOW);
	nvml = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	if (driver == NULL || nvml == NULL) {
		fprintf(stderr, "ordinals: %s\n", dlerror());
		return 1;
	}
	int count = of_cuda();

	of_nvml();
	if (count > 0) {
		FIND(driver, cuDevicePrimaryCtxRetain, (void **context, int device));
		FIND(driver, cuCtxSetCurrent, (void *context));
		FIND(driver, cuMemAlloc_v2, (unsigned long long *pointer, size_t bytes));
		unsigned long long pointer;
		void *context;

		printf("alloc %d\n",
		       cuDevicePrimaryCtxRetain(&context, 0) == 0 && cuCtxSetCurrent(context) == 0
			       ? cuMemAlloc_v2(&pointer, 64 << 20)
			       : -1);
	}
	return 0;
}

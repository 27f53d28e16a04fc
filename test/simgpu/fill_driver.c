/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "fill_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* RPATH names this program's folder. The simulated library lies there only on a simulated node;
 * where it does not, the loader goes on to the system's. */
static void *open_driver(void)
{
	void *handle = dlopen("libcuda.so.1", RTLD_NOW);

	if (handle == NULL)
		fprintf(stderr, "vgpu-fill: %s\n", dlerror());
	return handle;
}

int fill_driver_load(struct fill_driver *driver)
{
	const struct {
		const char *name;
		void *slot;
	} need[] = {
		{ "cuInit", &driver->init },
		{ "cuDeviceGet", &driver->device_get },
		{ "cuDeviceGetName", &driver->device_name },
		{ "cuDevicePrimaryCtxRetain", &driver->primary_retain },
		{ "cuCtxSetCurrent", &driver->set_current },
		{ "cuCtxSynchronize", &driver->synchronize },
		{ "cuMemGetInfo_v2", &driver->mem_info },
		{ "cuGetErrorName", &driver->error_name },
		{ "cuMemAlloc_v2", &driver->alloc },
		{ "cuMemAllocManaged", &driver->alloc_managed },
		{ "cuMemAllocAsync", &driver->alloc_async },
		{ "cuMemAddressReserve", &driver->reserve },
		{ "cuMemCreate", &driver->create },
		{ "cuMemMap", &driver->map },
		{ "cuMemSetAccess", &driver->set_access },
		{ "cuMemGetAllocationGranularity", &driver->granularity },
		{ "cuMemsetD8_v2", &driver->memset8 },
	};
	void *handle = open_driver();

	if (handle == NULL)
		return 0;
	for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		void *symbol = dlsym(handle, need[i].name);

		if (symbol == NULL) {
			fprintf(stderr, "vgpu-fill: the driver has no %s\n", need[i].name);
			return 0;
		}
		memcpy(need[i].slot, &symbol, sizeof(symbol));
	}
	return 1;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "fill_driver.h"

#include "driver_symbols.h"

int fill_driver_load(struct fill_driver *driver)
{
	const struct driver_symbol need[] = {
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

	return driver_symbols(need, sizeof(need) / sizeof(need[0]));
}

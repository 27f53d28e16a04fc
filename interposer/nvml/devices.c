/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "nvml/devices.h"

#include "api/symbols.h"
#include "driver/device.h"

/* A slice of the job that is not the step's is on the limits page without memory. */
static bool is_of_step(uint32_t i)
{
	return __atomic_load_n(&vgpu_pages.limits->device[i].step_mem_bytes, __ATOMIC_RELAXED) > 0;
}

/* The driver's handle of device i of the limits page. A lost GPU counts, and has no handle. */
static nvmlReturn_t handle_of_device(uint32_t i, nvmlDevice_t *handle, bool *shown)
{
	vgpu_fn_nvmlDeviceGetHandleByUUID *by_uuid = VGPU_REAL(nvmlDeviceGetHandleByUUID);
	nvmlReturn_t result = by_uuid == NULL ? NVML_ERROR_FUNCTION_NOT_FOUND
					      : by_uuid(vgpu_pages.limits->device[i].uuid, handle);

	*shown = (result == NVML_SUCCESS || result == NVML_ERROR_GPU_IS_LOST) && is_of_step(i);
	return result;
}

static uint32_t granted_count(void)
{
	uint32_t count = __atomic_load_n(&vgpu_pages.limits->device_count, __ATOMIC_RELAXED);

	return count < VGPU_MAX_DEVICES ? count : VGPU_MAX_DEVICES;
}

/* How many of the first devices of the limits page are shown. */
static unsigned int shown_before(uint32_t end)
{
	unsigned int count = 0;

	for (uint32_t i = 0; i < end; i++) {
		nvmlDevice_t handle;
		bool shown;

		handle_of_device(i, &handle, &shown);
		count += shown;
	}
	return count;
}

nvmlReturn_t vgpu_nvml_count(unsigned int *count)
{
	*count = shown_before(granted_count());
	return NVML_SUCCESS;
}

nvmlReturn_t vgpu_nvml_by_index(unsigned int index, nvmlDevice_t *handle)
{
	unsigned int at = 0;

	for (uint32_t i = 0; i < granted_count(); i++) {
		nvmlDevice_t found = NULL;
		bool shown;
		nvmlReturn_t result = handle_of_device(i, &found, &shown);

		if (result == NVML_ERROR_UNINITIALIZED)
			return result;
		if (!shown || at++ != index)
			continue;
		if (result == NVML_SUCCESS)
			*handle = found;
		return result;
	}
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t vgpu_nvml_index_of(nvmlDevice_t handle, unsigned int *index)
{
	int device = vgpu_device_of_nvml(handle);

	if (device < 0 || !is_of_step((uint32_t)device))
		return NVML_ERROR_INVALID_ARGUMENT;
	*index = shown_before((uint32_t)device);
	return NVML_SUCCESS;
}

bool vgpu_nvml_granted(nvmlDevice_t handle)
{
	int device = vgpu_device_of_nvml(handle);

	return device >= 0 && is_of_step((uint32_t)device);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver/device.h"

#include "api/symbols.h"
#include "driver/contexts.h"
#include "tuning.h"

#include <stdio.h>
#include <string.h>

#define CACHED_NOT_GRANTED 255

static int index_of_uuid(const char *uuid)
{
	const struct vgpu_limits *limits = vgpu_pages.limits;
	uint32_t count = __atomic_load_n(&limits->device_count, __ATOMIC_RELAXED);

	for (uint32_t d = 0; d < count && d < VGPU_MAX_DEVICES; d++) {
		if (strncmp(limits->device[d].uuid, uuid, VGPU_UUID_BYTES) == 0 && uuid[0] != '\0')
			return (int)d;
	}
	return VGPU_NOT_GRANTED;
}

/* As nvidia-smi -L prints it. */
static void write_uuid(char out[VGPU_UUID_BYTES], const CUuuid *uuid)
{
	size_t at = (size_t)snprintf(out, VGPU_UUID_BYTES, "GPU");

	for (int i = 0; i < 16; i++)
		at += (size_t)snprintf(out + at, VGPU_UUID_BYTES - at, "%s%02x",
				       i == 0 || i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
				       (unsigned char)uuid->bytes[i]);
}

int vgpu_device_of_ordinal(struct vgpu_process *p, CUdevice ordinal)
{
	vgpu_fn_cuDeviceGetUuid *get_uuid = VGPU_REAL(cuDeviceGetUuid);
	bool cached = ordinal >= 0 && ordinal < VGPU_CACHED_DEVICES;
	uint8_t known = cached ? __atomic_load_n(&vgpu_driver(p)->device_of[ordinal], __ATOMIC_RELAXED) : 0;
	char text[VGPU_UUID_BYTES];
	CUuuid uuid;
	int device;

	if (known == CACHED_NOT_GRANTED)
		return VGPU_NOT_GRANTED;
	if (known != 0)
		return known - 1;
	if (get_uuid == NULL || get_uuid(&uuid, ordinal) != CUDA_SUCCESS)
		return VGPU_NO_DEVICE;
	write_uuid(text, &uuid);
	device = index_of_uuid(text);
	if (cached)
		__atomic_store_n(&vgpu_driver(p)->device_of[ordinal],
				 device < 0 ? CACHED_NOT_GRANTED : (uint8_t)(device + 1), __ATOMIC_RELAXED);
	return device;
}

int vgpu_device_of_current(struct vgpu_process *p)
{
	vgpu_fn_cuCtxGetDevice *get_device = VGPU_REAL(cuCtxGetDevice);
	CUdevice ordinal;

	if (get_device == NULL || get_device(&ordinal) != CUDA_SUCCESS)
		return VGPU_NO_DEVICE;
	return vgpu_device_of_ordinal(p, ordinal);
}

bool vgpu_device_of_stream(struct vgpu_process *p, CUstream stream, CUdevice *ordinal)
{
	vgpu_fn_cuCtxGetDevice *get_device = VGPU_REAL(cuCtxGetDevice);
	bool current = get_device != NULL && get_device(ordinal) == CUDA_SUCCESS;
	bool is_default = stream == NULL || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;

	if (!is_default && (!current || vgpu_device_several(p))) {
		vgpu_fn_cuStreamGetCtx *get_context = VGPU_REAL(cuStreamGetCtx);
		CUcontext of_stream, of_thread = NULL;
		vgpu_fn_cuCtxGetCurrent *get_current = VGPU_REAL(cuCtxGetCurrent);

		if (get_context != NULL && get_context(stream, &of_stream) == CUDA_SUCCESS &&
		    (get_current == NULL || get_current(&of_thread) != CUDA_SUCCESS ||
		     of_stream != of_thread))
			return vgpu_contexts_ordinal(p, of_stream, ordinal) || current;
	}
	return current;
}

int vgpu_device_of_nvml(nvmlDevice_t handle)
{
	vgpu_fn_nvmlDeviceGetUUID *get_uuid = VGPU_REAL(nvmlDeviceGetUUID);
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];

	if (get_uuid == NULL || get_uuid(handle, uuid, sizeof(uuid)) != NVML_SUCCESS)
		return VGPU_NO_DEVICE;
	return index_of_uuid(uuid);
}

bool vgpu_device_ask_several(struct vgpu_process *p)
{
	vgpu_fn_cuDeviceGetUuid *get_uuid = VGPU_REAL(cuDeviceGetUuid);
	CUuuid uuid;
	bool several = get_uuid != NULL && get_uuid(&uuid, 1) == CUDA_SUCCESS;

	__atomic_store_n(&vgpu_driver(p)->several_devices, several ? 2 : 1, __ATOMIC_RELAXED);
	return several;
}

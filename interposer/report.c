/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include "symbols.h"

#include <sys/mman.h>

#define NVML_UNTRIED 0u
#define NVML_READY 1u
#define NVML_ABSENT 2u
#define LISTED_PROCESSES 1024

/* Starting NVML takes some milliseconds, a context a hundred times as long. */
static bool nvml_ready(struct vgpu_process *p)
{
	uint32_t ready = __atomic_load_n(&p->nvml_ready, __ATOMIC_ACQUIRE);

	if (ready == NVML_UNTRIED) {
		vgpu_fn_nvmlInit_v2 *init = vgpu_real_load_nvml() ? VGPU_REAL(nvmlInit_v2) : NULL;

		ready = init != NULL && init() == NVML_SUCCESS ? NVML_READY : NVML_ABSENT;
		__atomic_store_n(&p->nvml_ready, ready, __ATOMIC_RELEASE);
	}
	return ready == NVML_READY;
}

static nvmlDevice_t handle_of(struct vgpu_process *p, uint32_t device)
{
	vgpu_fn_nvmlDeviceGetHandleByUUID *get_handle = VGPU_REAL(nvmlDeviceGetHandleByUUID);
	nvmlDevice_t handle = __atomic_load_n(&p->overhead[device].nvml_device, __ATOMIC_RELAXED);

	if (handle != NULL || get_handle == NULL ||
	    get_handle(vgpu_pages.limits->device[device].uuid, &handle) != NVML_SUCCESS)
		return handle;
	__atomic_store_n(&p->overhead[device].nvml_device, handle, __ATOMIC_RELAXED);
	return handle;
}

bool vgpu_report_bytes(struct vgpu_process *p, uint32_t device, uint64_t *bytes)
{
	vgpu_fn_nvmlDeviceGetComputeRunningProcesses_v3 *get_list;
	nvmlProcessInfo_v2_t *list;
	nvmlDevice_t handle;
	unsigned int count = LISTED_PROCESSES;
	bool found = false;

	*bytes = 0;
	if (!nvml_ready(p))
		return false;
	handle = handle_of(p, device);
	get_list = VGPU_REAL(nvmlDeviceGetComputeRunningProcesses_v3);
	if (get_list == NULL)
		get_list = VGPU_REAL(nvmlDeviceGetComputeRunningProcesses_v2);
	if (get_list == NULL || handle == NULL)
		return false;
	list = mmap(NULL, LISTED_PROCESSES * sizeof(*list), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (list == MAP_FAILED)
		return false;
	if (get_list(handle, &count, list) == NVML_SUCCESS) {
		for (unsigned int i = 0; i < count && i < LISTED_PROCESSES; i++) {
			if (list[i].pid != (unsigned int)p->pid || list[i].usedGpuMemory == NVML_VALUE_NOT_AVAILABLE)
				continue;
			*bytes += list[i].usedGpuMemory;
			found = true;
		}
	}
	munmap(list, LISTED_PROCESSES * sizeof(*list));
	return found;
}

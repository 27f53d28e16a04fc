/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "driver/report.h"

#include "api/symbols.h"
#include "base/futex.h"
#include "base/thread.h"
#include "driver/own.h"
#include "tuning.h"

#include <sys/mman.h>

#define NVML_UNTRIED 0u
#define NVML_READY 1u
#define NVML_ABSENT 2u
#define NVML_STARTS 3u /* a thread is to load and look up what it needs */
#define NVML_INITS 4u  /* it has */

static nvmlDevice_t nvml_handle(struct vgpu_process *p, uint32_t device)
{
	vgpu_fn_nvmlDeviceGetHandleByUUID *get_handle = VGPU_REAL(nvmlDeviceGetHandleByUUID);
	nvmlDevice_t handle = __atomic_load_n(&vgpu_driver(p)->nvml_device[device], __ATOMIC_RELAXED);

	if (handle != NULL || get_handle == NULL ||
	    get_handle(vgpu_pages.limits->device[device].uuid, &handle) != NVML_SUCCESS)
		return handle;
	__atomic_store_n(&vgpu_driver(p)->nvml_device[device], handle, __ATOMIC_RELAXED);
	return handle;
}

/* By whoever has found it untried. */
static void start(struct vgpu_process *p, uint32_t device)
{
	vgpu_fn_nvmlInit_v2 *init = vgpu_real_load_nvml() ? VGPU_REAL(nvmlInit_v2) : NULL;
	bool ready;

	__atomic_store_n(&vgpu_driver(p)->nvml_ready, NVML_INITS, __ATOMIC_RELEASE);
	vgpu_futex_wake(&vgpu_driver(p)->nvml_ready, INT32_MAX, FUTEX_PRIVATE_FLAG);
	ready = init != NULL && init() == NVML_SUCCESS;
	if (ready)
		nvml_handle(p, device);
	__atomic_store_n(&vgpu_driver(p)->nvml_ready, ready ? NVML_READY : NVML_ABSENT, __ATOMIC_RELEASE);
	vgpu_futex_wake(&vgpu_driver(p)->nvml_ready, INT32_MAX, FUTEX_PRIVATE_FLAG);
}

static bool begin_to_start(struct vgpu_process *p)
{
	uint32_t untried = NVML_UNTRIED;

	return __atomic_compare_exchange_n(&vgpu_driver(p)->nvml_ready, &untried, NVML_STARTS, 0,
					   __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* handle: where the device's is kept. */
static void *start_beside(void *handle)
{
	struct vgpu_process *p = __atomic_load_n(&vgpu_this_process, __ATOMIC_ACQUIRE);

	start(p, (uint32_t)((nvmlDevice_t *)handle - vgpu_driver(p)->nvml_device));
	return NULL;
}

void vgpu_report_prepare(struct vgpu_process *p, uint32_t device)
{
	if (begin_to_start(p) && !vgpu_thread_start(start_beside, &vgpu_driver(p)->nvml_device[device]))
		start(p, device);
}

/* Waits while that is so, and no longer than that. */
static void wait_while(struct vgpu_process *p, uint32_t state, uint64_t at_most_ns)
{
	uint64_t since = vgpu_now_ns(), waited;

	while (__atomic_load_n(&vgpu_driver(p)->nvml_ready, __ATOMIC_ACQUIRE) == state &&
	       (waited = vgpu_now_ns() - since) < at_most_ns)
		vgpu_futex_wait(&vgpu_driver(p)->nvml_ready, state, FUTEX_PRIVATE_FLAG,
				(int64_t)(at_most_ns - waited));
}

bool vgpu_report_ready(struct vgpu_process *p)
{
	/* A context that is made while a library is loaded, by its constructor: then this thread keeps all
	 * others from loading anything, and would wait for itself. */
	wait_while(p, NVML_STARTS, VGPU_NVML_LOADED_NS);
	wait_while(p, NVML_INITS, VGPU_NVML_STARTED_NS);
	return __atomic_load_n(&vgpu_driver(p)->nvml_ready, __ATOMIC_ACQUIRE) == NVML_READY;
}

bool vgpu_report_is_coming(struct vgpu_process *p)
{
	uint32_t ready = __atomic_load_n(&vgpu_driver(p)->nvml_ready, __ATOMIC_ACQUIRE);

	return ready == NVML_STARTS || ready == NVML_INITS;
}

bool vgpu_report_bytes(struct vgpu_process *p, uint32_t device, uint64_t *bytes)
{
	vgpu_fn_nvmlDeviceGetComputeRunningProcesses_v3 *get_list;
	nvmlProcessInfo_v2_t *list;
	nvmlDevice_t handle;
	unsigned int count = VGPU_REPORT_PROCESSES;
	bool found = false;

	*bytes = 0;
	if (begin_to_start(p))
		start(p, device);
	if (!vgpu_report_ready(p))
		return false;
	handle = nvml_handle(p, device);
	get_list = VGPU_REAL(nvmlDeviceGetComputeRunningProcesses_v3);
	if (get_list == NULL)
		get_list = VGPU_REAL(nvmlDeviceGetComputeRunningProcesses_v2);
	if (get_list == NULL || handle == NULL)
		return false;
	list = mmap(NULL, VGPU_REPORT_PROCESSES * sizeof(*list), PROT_READ | PROT_WRITE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (list == MAP_FAILED)
		return false;
	if (get_list(handle, &count, list) == NVML_SUCCESS) {
		for (unsigned int i = 0; i < count && i < VGPU_REPORT_PROCESSES; i++) {
			if (list[i].pid != (unsigned int)p->pid ||
			    list[i].usedGpuMemory == NVML_VALUE_NOT_AVAILABLE)
				continue;
			*bytes += list[i].usedGpuMemory;
			found = true;
		}
	}
	munmap(list, VGPU_REPORT_PROCESSES * sizeof(*list));
	return found;
}

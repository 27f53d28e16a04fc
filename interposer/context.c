/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "context.h"

#include "account.h"
#include "blocks.h"
#include "device.h"
#include "futex.h"
#include "message.h"
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

/* Bytes of this process on the device as the driver reports them, 0 when it does not. */
static uint64_t reported_bytes(struct vgpu_process *p, uint32_t device)
{
	vgpu_fn_nvmlDeviceGetHandleByUUID *get_handle;
	vgpu_fn_nvmlDeviceGetComputeRunningProcesses_v3 *get_list;
	nvmlProcessInfo_v2_t *list;
	nvmlDevice_t handle;
	unsigned int count = LISTED_PROCESSES;
	uint64_t bytes = 0;

	if (!nvml_ready(p))
		return 0;
	get_handle = VGPU_REAL(nvmlDeviceGetHandleByUUID);
	get_list = VGPU_REAL(nvmlDeviceGetComputeRunningProcesses_v3);
	if (get_list == NULL)
		get_list = VGPU_REAL(nvmlDeviceGetComputeRunningProcesses_v2);
	if (get_handle == NULL || get_list == NULL ||
	    get_handle(vgpu_pages.limits->device[device].uuid, &handle) != NVML_SUCCESS)
		return 0;
	list = mmap(NULL, LISTED_PROCESSES * sizeof(*list), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (list == MAP_FAILED)
		return 0;
	if (get_list(handle, &count, list) == NVML_SUCCESS) {
		for (unsigned int i = 0; i < count && i < LISTED_PROCESSES; i++) {
			if (list[i].pid == (unsigned int)p->pid && list[i].usedGpuMemory != NVML_VALUE_NOT_AVAILABLE)
				bytes += list[i].usedGpuMemory;
		}
	}
	munmap(list, LISTED_PROCESSES * sizeof(*list));
	return bytes;
}

/* Notes the context unless it is known. NULL then, and when there is no room. */
static struct vgpu_context *note(struct vgpu_process *p, CUcontext context, CUdevice ordinal, uint32_t device,
				 bool primary)
{
	struct vgpu_context *unused = NULL;
	struct vgpu_context *noted = NULL;

	vgpu_mutex_lock(&p->context_mutex);
	for (int i = 0; i < VGPU_MAX_CONTEXTS && noted == NULL; i++) {
		if (p->context[i].handle == context)
			noted = &p->context[i];
		else if (p->context[i].handle == NULL && unused == NULL)
			unused = &p->context[i];
	}
	if (noted == NULL && unused != NULL)
		*unused = (struct vgpu_context){
			.handle = context, .ordinal = ordinal, .device = device, .primary = primary};
	vgpu_mutex_unlock(&p->context_mutex);
	return noted == NULL ? unused : NULL;
}

/* Takes the note of the context away; its bytes, once charged, are then the caller's to give back. */
static bool take(struct vgpu_process *p, CUcontext context, struct vgpu_context *out)
{
	bool found = false;

	vgpu_mutex_lock(&p->context_mutex);
	for (int i = 0; i < VGPU_MAX_CONTEXTS && !found; i++) {
		if (context != NULL && p->context[i].handle == context) {
			*out = p->context[i];
			p->context[i] = (struct vgpu_context){0};
			found = true;
		}
	}
	vgpu_mutex_unlock(&p->context_mutex);
	return found;
}

bool vgpu_context_made(struct vgpu_process *p, CUcontext context, CUdevice ordinal, bool primary)
{
	int device = vgpu_device_of_ordinal(p, ordinal);
	struct vgpu_context *noted;
	struct vgpu_context gone;
	uint64_t reported;
	uint64_t known;
	uint64_t cost;
	bool still_there;

	if (device < 0)
		return true; /* nothing can be allocated there */
	noted = note(p, context, ordinal, (uint32_t)device, primary);
	if (noted == NULL)
		return true;
	/* In this order: what another thread allocates in between is in both, or only in known. */
	reported = reported_bytes(p, (uint32_t)device);
	known = __atomic_load_n(&p->held_bytes[device], __ATOMIC_RELAXED);
	cost = reported > known ? reported - known : 0;
	if (cost == 0)
		return true;
	if (!vgpu_account_charge(p, (uint32_t)device, cost)) {
		vgpu_message_limit(p, (uint32_t)device, cost);
		take(p, context, &gone);
		return false;
	}
	vgpu_mutex_lock(&p->context_mutex);
	still_there = noted->handle == context;
	if (still_there)
		noted->bytes = cost;
	vgpu_mutex_unlock(&p->context_mutex);
	if (!still_there)
		vgpu_account_give_back(p, (uint32_t)device, cost);
	return true;
}

void vgpu_context_gone(struct vgpu_process *p, CUcontext context)
{
	struct vgpu_context gone;

	if (context == NULL)
		return;
	if (take(p, context, &gone))
		vgpu_account_give_back(p, gone.device, gone.bytes);
	vgpu_blocks_drop_context(p, context);
}

void vgpu_context_primary_released(struct vgpu_process *p, CUdevice ordinal)
{
	vgpu_fn_cuDevicePrimaryCtxGetState *get_state = VGPU_REAL(cuDevicePrimaryCtxGetState);
	CUcontext context = NULL;
	unsigned int flags;
	int active = 1;

	if (get_state == NULL || get_state(ordinal, &flags, &active) != CUDA_SUCCESS || active)
		return;
	vgpu_mutex_lock(&p->context_mutex);
	for (int i = 0; i < VGPU_MAX_CONTEXTS && context == NULL; i++) {
		if (p->context[i].primary && p->context[i].ordinal == ordinal)
			context = p->context[i].handle;
	}
	vgpu_mutex_unlock(&p->context_mutex);
	vgpu_context_gone(p, context);
}

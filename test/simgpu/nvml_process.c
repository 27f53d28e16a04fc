/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Who uses a device, and how much of its memory. A buffer that is too small gets no entries, and
 * the count that is needed. */
#include "nvml.h"

#include <string.h>

#define NO_INSTANCE 0xffffffffu

/* Writes entry n of whatever form the caller's list has. */
typedef void (*writer)(void *list, unsigned n, unsigned pid, unsigned long long used_bytes);

static void write_v1(void *list, unsigned n, unsigned pid, unsigned long long used_bytes)
{
	nvmlProcessInfo_v1_t *entry = (nvmlProcessInfo_v1_t *)list + n;

	*entry = (nvmlProcessInfo_v1_t){ .pid = pid, .usedGpuMemory = used_bytes };
}

static void write_v2(void *list, unsigned n, unsigned pid, unsigned long long used_bytes)
{
	nvmlProcessInfo_v2_t *entry = (nvmlProcessInfo_v2_t *)list + n;

	*entry = (nvmlProcessInfo_v2_t){ .pid = pid,
					 .usedGpuMemory = used_bytes,
					 .gpuInstanceId = NO_INSTANCE,
					 .computeInstanceId = NO_INSTANCE };
}

static bool uses(const struct sim_proc *proc, int device, uint64_t pidns)
{
	return proc->live && proc->pidns == pidns &&
	       (proc->device[device].contexts != 0 || proc->device[device].mem_bytes != 0);
}

unsigned ml_users(nvmlDevice_t device, unsigned *pid, unsigned room)
{
	const struct sim_state *state = sim_state();
	uint64_t pidns = sim_pidns();
	unsigned n = 0;

	if (!sim_lock())
		return 0;
	sim_sweep();
	for (unsigned i = 0; i < state->procs_high && n < room; i++)
		if (uses(&state->proc[i], device->device, pidns))
			pid[n++] = (unsigned)state->proc[i].pid;
	sim_unlock();
	return n;
}

static void write_detail(void *list, unsigned n, unsigned pid, unsigned long long used_bytes)
{
	nvmlProcessDetail_v1_t *entry = (nvmlProcessDetail_v1_t *)list + n;

	*entry = (nvmlProcessDetail_v1_t){ .pid = pid,
					   .usedGpuMemory = used_bytes,
					   .gpuInstanceId = NO_INSTANCE,
					   .computeInstanceId = NO_INSTANCE };
}

static void write_smi(void *list, unsigned n, unsigned pid, unsigned long long used_bytes)
{
	struct vgpu_smi_process *entry = (struct vgpu_smi_process *)list + n;

	*entry = (struct vgpu_smi_process){ .pid = pid,
					    .used_bytes = used_bytes,
					    .gpu_instance = NO_INSTANCE,
					    .compute_instance = NO_INSTANCE };
	sim_nvmlSystemGetProcessName(pid, entry->name, sizeof(entry->name));
}

static unsigned int times_asked;

nvmlReturn_t sim_nvmlSimAsked(unsigned int *times)
{
	*times = __atomic_load_n(&times_asked, __ATOMIC_RELAXED);
	return NVML_SUCCESS;
}

static nvmlReturn_t compute(nvmlDevice_t device, unsigned int *count, void *list, writer write)
{
	const struct sim_device_conf *conf;
	const struct sim_state *state = sim_state();
	nvmlReturn_t result = NVML_SUCCESS;
	uint64_t pidns = sim_pidns();
	unsigned need = 0;

	__atomic_add_fetch(&times_asked, 1, __ATOMIC_RELAXED);
	NEED(ml_device(device, &conf));
	if (count == NULL || (list == NULL && *count != 0))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!sim_lock())
		return NVML_ERROR_UNKNOWN;
	sim_sweep();
	for (unsigned i = 0; i < state->procs_high; i++)
		need += uses(&state->proc[i], device->device, pidns);
	if (need > *count)
		result = NVML_ERROR_INSUFFICIENT_SIZE;
	*count = need;
	for (unsigned i = 0, n = 0; result == NVML_SUCCESS && i < state->procs_high; i++)
		if (uses(&state->proc[i], device->device, pidns))
			write(list, n++, (unsigned)state->proc[i].pid,
			      state->proc[i].device[device->device].mem_bytes -
				      state->proc[i].device[device->device].managed_bytes);
	sim_unlock();
	return result;
}

/* Nothing draws here, and there is no MPS. */
static nvmlReturn_t none(nvmlDevice_t device, unsigned int *count)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (count == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = 0;
	return NVML_SUCCESS;
}

#define PROCESSES(KIND, VERSION, TYPE, RESULT)                                                    \
	nvmlReturn_t sim_nvmlDeviceGet##KIND##RunningProcesses##VERSION(                          \
		nvmlDevice_t device, unsigned int *count, TYPE *list)                             \
	{                                                                                         \
		(void)list;                                                                       \
		return RESULT;                                                                    \
	}

PROCESSES(Compute, , nvmlProcessInfo_v1_t, compute(device, count, list, write_v1))
PROCESSES(Compute, _v2, nvmlProcessInfo_v2_t, compute(device, count, list, write_v2))
PROCESSES(Compute, _v3, nvmlProcessInfo_v2_t, compute(device, count, list, write_v2))
PROCESSES(Graphics, , nvmlProcessInfo_v1_t, none(device, count))
PROCESSES(Graphics, _v2, nvmlProcessInfo_v2_t, none(device, count))
PROCESSES(Graphics, _v3, nvmlProcessInfo_v2_t, none(device, count))
PROCESSES(MPSCompute, , nvmlProcessInfo_v1_t, none(device, count))
PROCESSES(MPSCompute, _v2, nvmlProcessInfo_v2_t, none(device, count))
PROCESSES(MPSCompute, _v3, nvmlProcessInfo_v2_t, none(device, count))

nvmlReturn_t sim_nvmlDeviceGetRunningProcessDetailList(nvmlDevice_t device,
						       nvmlProcessDetailList_v1_t *details)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (details == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (details->version != NVML_STRUCT_V1(*details))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (details->mode > 2)
		return NVML_ERROR_INVALID_ARGUMENT;
	return details->mode == 0
		       ? compute(device, &details->numProcArrayEntries, details->procArray, write_detail)
		       : none(device, &details->numProcArrayEntries);
}

/* ---- what nvidia-smi uses ---- */

static nvmlReturn_t smi_compute(nvmlDevice_t device, unsigned int *count, struct vgpu_smi_process *list)
{
	return compute(device, count, list, write_smi);
}

static nvmlReturn_t smi_none(nvmlDevice_t device, unsigned int *count, struct vgpu_smi_process *list)
{
	(void)list;
	return none(device, count);
}

nvmlReturn_t sim_nvmlInternalGetExportTable(const void **table, const void *uuid)
{
	static const unsigned char known[16] = NVML_SMI_TABLE_UUID;
	static const void *const entries[NVML_SMI_TABLE_ENTRIES] = {
		[0] = (const void *)(NVML_SMI_TABLE_ENTRIES * sizeof(void *)),
		[NVML_SMI_COMPUTE_LIST] = (const void *)smi_compute,
		[NVML_SMI_GRAPHICS_LIST] = (const void *)smi_none,
		[NVML_SMI_MPS_LIST] = (const void *)smi_none,
	};

	if (table == NULL || uuid == NULL || memcmp(uuid, known, sizeof(known)) != 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	*table = entries;
	return NVML_SUCCESS;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Who uses a device, and how much of its memory. A buffer that is too small gets no entries, and
 * the count that is needed. */
#include "nvml.h"

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

static nvmlReturn_t compute(nvmlDevice_t device, unsigned int *count, void *list, writer write)
{
	const struct sim_device_conf *conf;
	const struct sim_state *state = sim_state();
	nvmlReturn_t result = NVML_SUCCESS;
	uint64_t pidns = sim_pidns();
	unsigned need = 0;

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
			      state->proc[i].device[device->device].mem_bytes);
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

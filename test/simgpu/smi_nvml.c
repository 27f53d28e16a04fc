/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "smi.h"

#include "api/nvml_types.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define NVML_ERROR_LIBRARY_NOT_FOUND 12

int smi_load(struct smi_nvml *nvml)
{
	const struct {
		const char *name;
		void *slot;
	} need[] = {
		{ "nvmlInit_v2", &nvml->init },
		{ "nvmlShutdown", &nvml->shutdown },
		{ "nvmlErrorString", &nvml->error_string },
		{ "nvmlSystemGetDriverVersion", &nvml->driver_version },
		{ "nvmlSystemGetCudaDriverVersion_v2", &nvml->cuda_version },
		{ "nvmlDeviceGetCount_v2", &nvml->count },
		{ "nvmlDeviceGetHandleByIndex_v2", &nvml->by_index },
		{ "nvmlDeviceGetName", &nvml->name },
		{ "nvmlDeviceGetUUID", &nvml->uuid },
		{ "nvmlDeviceGetPciInfo_v3", &nvml->pci },
		{ "nvmlDeviceGetMemoryInfo_v2", &nvml->memory },
		{ "nvmlDeviceGetUtilizationRates", &nvml->utilization },
		{ "nvmlDeviceGetPowerUsage", &nvml->power },
		{ "nvmlDeviceGetTemperature", &nvml->temperature },
		{ "nvmlDeviceGetProcessUtilization", &nvml->samples },
		{ "nvmlInternalGetExportTable", &nvml->export_table },
		{ "nvmlSystemGetProcessName", &nvml->process_name },
	};
	void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW);

	if (handle == NULL) {
		fprintf(stderr, "nvidia-smi: %s\n", dlerror());
		return NVML_ERROR_LIBRARY_NOT_FOUND;
	}
	for (size_t i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		void *symbol = dlsym(handle, need[i].name);

		if (symbol == NULL) {
			fprintf(stderr, "nvidia-smi: the NVML library has no %s\n", need[i].name);
			return NVML_ERROR_FUNCTION_NOT_FOUND;
		}
		memcpy(need[i].slot, &symbol, sizeof(symbol));
	}
	return 0;
}

int smi_lists(struct smi_nvml *nvml)
{
	static const unsigned char uuid[16] = NVML_SMI_TABLE_UUID;
	const void *table = NULL;

	if (nvml->export_table(&table, uuid) != 0) {
		printf("Mismatch in versions between nvidia-smi and NVML.\n"
		       "Are you sure you are using nvidia-smi provided with the driver?\n");
		return 255;
	}
	memcpy(&nvml->processes, (void *const *)table + NVML_SMI_COMPUTE_LIST, sizeof(nvml->processes));
	return 0;
}

int smi_read(const struct smi_nvml *nvml, unsigned index, struct smi_gpu *gpu)
{
	struct smi_pci pci = { .id = "" };
	int rc;

	memset(gpu, 0, sizeof(*gpu));
	gpu->index = index;
	gpu->memory.version = (unsigned)sizeof(gpu->memory) | 2u << 24;
	gpu->process_count = SMI_MAX_PROCS;
	if ((rc = nvml->by_index(index, &gpu->device)) != 0 ||
	    (rc = nvml->name(gpu->device, gpu->name, sizeof(gpu->name))) != 0 ||
	    (rc = nvml->uuid(gpu->device, gpu->uuid, sizeof(gpu->uuid))) != 0 ||
	    (rc = nvml->pci(gpu->device, &pci)) != 0 ||
	    (rc = nvml->memory(gpu->device, &gpu->memory)) != 0 ||
	    (rc = nvml->utilization(gpu->device, &gpu->utilization)) != 0 ||
	    (rc = nvml->power(gpu->device, &gpu->power_mw)) != 0 ||
	    (rc = nvml->temperature(gpu->device, 0, &gpu->temperature_c)) != 0 ||
	    (rc = nvml->processes(gpu->device, &gpu->process_count, gpu->process)) != 0)
		fprintf(stderr, "nvidia-smi: GPU %u: %s\n", index, nvml->error_string(rc));
	memcpy(gpu->bus_id, pci.id, sizeof(gpu->bus_id));
	return rc;
}

void smi_process_name(const struct smi_nvml *nvml, unsigned pid, char *name, unsigned size)
{
	if (nvml->process_name(pid, name, size) != 0)
		snprintf(name, size, "[Not Found]");
}

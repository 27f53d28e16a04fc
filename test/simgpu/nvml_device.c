/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a device is and does. */
#define _GNU_SOURCE
#include "nvml.h"

#include <stdio.h>
#include <string.h>

#define WINDOW_NS 1000000000ull /* of utilisation */
#define BAR1_MIB 262144ull

static int index_of(const struct sim_device_conf *conf)
{
	return (int)(conf - sim_conf.device);
}

nvmlReturn_t sim_nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	return ml_text(conf->name, name, length);
}

nvmlReturn_t sim_nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	return ml_text(conf->uuid, uuid, length);
}

nvmlReturn_t sim_nvmlDeviceGetSerial(nvmlDevice_t device, char *serial, unsigned int length)
{
	const struct sim_device_conf *conf;
	char text[32];

	NEED(ml_device(device, &conf));
	snprintf(text, sizeof(text), "16500%08u", (unsigned)conf->uuid_raw[15] * 1000 + conf->pci_bus);
	return ml_text(text, serial, length);
}

nvmlReturn_t sim_nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (pci == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(pci, 0, sizeof(*pci));
	pci->bus = conf->pci_bus;
	pci->pciDeviceId = 0x233510de;
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", conf->pci_bus);
	snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", conf->pci_bus);
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlPciInfo_t full;

	if (pci == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	NEED(sim_nvmlDeviceGetPciInfo_v3(device, &full));
	memcpy(pci, &full, offsetof(nvmlPciInfo_t, busId)); /* that is where older ones end */
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlPciInfo_t full;

	if (pci == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	NEED(sim_nvmlDeviceGetPciInfo_v3(device, &full));
	memcpy(pci, &full, offsetof(nvmlPciInfo_t, pciSubSystemId));
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (memory == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != NVML_MEMORY_V2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory->total = conf->mem_bytes;
	memory->reserved = conf->reserved_bytes;
	memory->used = sim_mem_used(index_of(conf));
	memory->free = memory->total - memory->reserved - memory->used;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t full = { .version = NVML_MEMORY_V2 };

	NEED(sim_nvmlDeviceGetMemoryInfo_v2(device, &full));
	if (memory == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	memory->total = full.total;
	memory->free = full.free;
	memory->used = full.total - full.free; /* with what is reserved */
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *memory)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (memory == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	memory->bar1Total = BAR1_MIB * SIM_MIB;
	memory->bar1Used = sim_mem_used(index_of(conf)) + SIM_MIB; /* all of the memory is mapped */
	memory->bar1Free = memory->bar1Total - memory->bar1Used;
	return NVML_SUCCESS;
}

/* Of confidential computing, which is off. */
nvmlReturn_t sim_nvmlDeviceGetConfComputeProtectedMemoryUsage(nvmlDevice_t device, nvmlMemory_t *memory)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (memory == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*memory = (nvmlMemory_t){ 0 };
	return NVML_SUCCESS;
}

static unsigned busy_percent(const struct sim_device_conf *conf)
{
	return (unsigned)((sim_time_busy(index_of(conf), WINDOW_NS) * 100 + WINDOW_NS / 2) / WINDOW_NS);
}

nvmlReturn_t sim_nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (utilization == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	utilization->gpu = busy_percent(conf);
	utilization->memory = 0;
	return NVML_SUCCESS;
}

/* Whatever keeps the device busy keeps all its engines busy. */
#define ENGINE(NAME)                                                                                        \
	nvmlReturn_t sim_nvmlDeviceGet##NAME##Utilization(nvmlDevice_t device, unsigned int *percent,       \
							  unsigned int *period_us)                          \
	{                                                                                                   \
		const struct sim_device_conf *conf;                                                         \
                                                                                                            \
		NEED(ml_device(device, &conf));                                                             \
		if (percent == NULL || period_us == NULL)                                                   \
			return NVML_ERROR_INVALID_ARGUMENT;                                                 \
		*percent = busy_percent(conf);                                                              \
		*period_us = WINDOW_NS / 1000;                                                              \
		return NVML_SUCCESS;                                                                        \
	}

ENGINE(Encoder)
ENGINE(Decoder)
ENGINE(Jpg)
ENGINE(Ofa)

nvmlReturn_t sim_nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *mw)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (mw == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*mw = 75000 + 6250 * busy_percent(conf);
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *celsius)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (celsius == NULL || sensor != 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	*celsius = 30 + busy_percent(conf) / 4;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetTemperatureV(nvmlDevice_t device, nvmlTemperature_v1_t *temperature)
{
	unsigned celsius;

	if (temperature == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (temperature->version != (sizeof(*temperature) | 1u << 24))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	NEED(sim_nvmlDeviceGetTemperature(device, temperature->sensorType, &celsius));
	temperature->temperature = (int)celsius;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *percent)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	(void)percent;
	return NVML_ERROR_NOT_SUPPORTED; /* it has none */
}

nvmlReturn_t sim_nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (major == NULL || minor == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*major = conf->cc_major;
	*minor = conf->cc_minor;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetEccMode(nvmlDevice_t device, int *current, int *pending)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (current == NULL || pending == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*current = *pending = 1;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (current == NULL || pending == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*current = *pending = 0;
	return NVML_SUCCESS;
}

/* nvmlFieldValue_t of nvml.h. */
struct field_value {
	uint32_t field, scope;
	int64_t timestamp, latency_us;
	uint32_t type, result;
	uint64_t value;
};

/* Of all fields what is to be done with the GPU alone. */
nvmlReturn_t sim_nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, void *values)
{
	const struct sim_device_conf *conf;
	struct field_value *asked = values;

	NEED(ml_device(device, &conf));
	if (count <= 0 || values == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < count; i++) {
		bool known = asked[i].field == 230; /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION */

		asked[i].result = known ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
		asked[i].type = 1; /* unsigned int */
		asked[i].value = known ? conf->recovery : 0;
	}
	return NVML_SUCCESS;
}

/* Functions that give one number. */
#define NUMBER(NAME, TYPE, VALUE)                                   \
	nvmlReturn_t sim_##NAME(nvmlDevice_t device, TYPE *out)     \
	{                                                           \
		const struct sim_device_conf *conf;                 \
                                                                    \
		NEED(ml_device(device, &conf));                     \
		if (out == NULL)                                    \
			return NVML_ERROR_INVALID_ARGUMENT;         \
		*out = VALUE;                                       \
		return NVML_SUCCESS;                                \
	}

NUMBER(nvmlDeviceGetMinorNumber, unsigned int, (unsigned)conf->minor)
NUMBER(nvmlDeviceGetBrand, int, 14) /* NVIDIA */
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned int, 7)
NUMBER(nvmlDeviceIsMigDeviceHandle, unsigned int, 0)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 700000)
NUMBER(nvmlDeviceGetPerformanceState, int, 0)
NUMBER(nvmlDeviceGetPersistenceMode, int, 1)
NUMBER(nvmlDeviceGetComputeMode, int, 0)
NUMBER(nvmlDeviceGetDisplayActive, int, 0)
NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, 5)
NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, 16)
NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 5)
NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)

/* … which depends on a choice among several that are no different here. */
#define CHOICE(NAME, VALUE)                                                              \
	nvmlReturn_t sim_##NAME(nvmlDevice_t device, int which, unsigned int *out)       \
	{                                                                                \
		const struct sim_device_conf *conf;                                      \
                                                                                         \
		NEED(ml_device(device, &conf));                                          \
		if (out == NULL || which < 0)                                            \
			return NVML_ERROR_INVALID_ARGUMENT;                              \
		*out = VALUE;                                                            \
		return NVML_SUCCESS;                                                     \
	}

CHOICE(nvmlDeviceGetClockInfo, 1980)
CHOICE(nvmlDeviceGetMaxClockInfo, 1980)
CHOICE(nvmlDeviceGetTemperatureThreshold, 90)
CHOICE(nvmlDeviceGetPcieThroughput, 0)

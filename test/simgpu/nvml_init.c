/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Start, the system's versions, and handles. NVML counts only devices whose node opens, in the
 * order of their PCI bus. */
#define _GNU_SOURCE
#include "nvml.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static unsigned count;
static struct nvmlDevice_st handle[SIM_MAX_DEVICES]; /* by NVML index */

nvmlReturn_t ml_ready(void)
{
	return __atomic_load_n(&users, __ATOMIC_ACQUIRE) > 0 ? NVML_SUCCESS
							     : NVML_ERROR_UNINITIALIZED;
}

static void enumerate(void)
{
	sim_conf_probe_nodes(&sim_conf);
	count = 0;
	for (int i = 0; i < sim_conf.device_count; i++) {
		unsigned at = count;

		if (sim_conf.device[i].hidden)
			continue;
		while (at > 0 &&
		       sim_conf.device[handle[at - 1].device].pci_bus > sim_conf.device[i].pci_bus) {
			handle[at] = handle[at - 1];
			at--;
		}
		handle[at].device = i;
		count++;
	}
}

nvmlReturn_t sim_nvmlInit_v2(void)
{
	nvmlReturn_t result = NVML_SUCCESS;

	pthread_mutex_lock(&lock);
	if (users == 0) {
		if (sim_attach() != 0)
			result = NVML_ERROR_UNKNOWN;
		else
			enumerate();
	}
	if (result == NVML_SUCCESS)
		__atomic_add_fetch(&users, 1, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	return result;
}

nvmlReturn_t sim_nvmlInit(void)
{
	return sim_nvmlInit_v2();
}

nvmlReturn_t sim_nvmlInitWithFlags(unsigned int flags)
{
	return flags <= 3 ? sim_nvmlInit_v2() : NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t sim_nvmlShutdown(void)
{
	nvmlReturn_t result = NVML_ERROR_UNINITIALIZED;

	pthread_mutex_lock(&lock);
	if (users > 0) {
		users--;
		result = NVML_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

nvmlReturn_t ml_text(const char *text, char *to, unsigned int length)
{
	NEED(ml_ready());
	if (to == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (strlen(text) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(to, text);
	return NVML_SUCCESS;
}

nvmlReturn_t ml_device(nvmlDevice_t device, const struct sim_device_conf **conf)
{
	NEED(ml_ready());
	for (unsigned i = 0; i < count; i++)
		if (device == &handle[i]) {
			*conf = &sim_conf.device[device->device];
			return (*conf)->lost ? NVML_ERROR_GPU_IS_LOST : NVML_SUCCESS;
		}
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t sim_nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return ml_text(sim_conf.driver, version, length);
}

nvmlReturn_t sim_nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	char text[96];

	snprintf(text, sizeof(text), "%d.%s", sim_conf.cuda_version / 1000, sim_conf.driver);
	return ml_text(text, version, length);
}

nvmlReturn_t sim_nvmlSystemGetCudaDriverVersion_v2(int *version)
{
	NEED(ml_ready());
	if (version == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*version = sim_conf.cuda_version;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlSystemGetCudaDriverVersion(int *version)
{
	return sim_nvmlSystemGetCudaDriverVersion_v2(version);
}

nvmlReturn_t sim_nvmlSystemGetProcessName(unsigned int pid, char *name, unsigned int length)
{
	char path[40], text[256];
	ssize_t n;
	int fd;

	NEED(ml_ready());
	if (name == NULL || length == 0)
		return NVML_ERROR_INVALID_ARGUMENT;
	snprintf(path, sizeof(path), "/proc/%u/cmdline", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NVML_ERROR_NOT_FOUND;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0'; /* up to the first NUL: the program without its arguments */
	snprintf(name, length, "%s", text);
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetCount_v2(unsigned int *out)
{
	NEED(ml_ready());
	if (out == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*out = count;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetCount(unsigned int *out)
{
	return sim_nvmlDeviceGetCount_v2(out);
}

nvmlReturn_t sim_nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	NEED(ml_ready());
	if (device == NULL || index >= count)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sim_conf.device[handle[index].device].lost)
		return NVML_ERROR_GPU_IS_LOST;
	*device = &handle[index];
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return sim_nvmlDeviceGetHandleByIndex_v2(index, device);
}

nvmlReturn_t sim_nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	NEED(ml_ready());
	if (uuid == NULL || device == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < count; i++)
		if (strcmp(sim_conf.device[handle[i].device].uuid, uuid) == 0)
			return sim_nvmlDeviceGetHandleByIndex_v2(i, device);
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t sim_nvmlDeviceGetHandleByPciBusId_v2(const char *id, nvmlDevice_t *device)
{
	unsigned domain, bus, slot, function;
	char rest;

	NEED(ml_ready());
	if (id == NULL || device == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sscanf(id, "%8x:%2x:%2x.%1x%c", &domain, &bus, &slot, &function, &rest) != 4)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < count; i++)
		if (domain == 0 && slot == 0 && sim_conf.device[handle[i].device].pci_bus == bus)
			return sim_nvmlDeviceGetHandleByIndex_v2(i, device);
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t sim_nvmlDeviceGetHandleByPciBusId(const char *id, nvmlDevice_t *device)
{
	return sim_nvmlDeviceGetHandleByPciBusId_v2(id, device);
}

nvmlReturn_t sim_nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (index == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*index = (unsigned)(device - handle);
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetHandleByUUIDV(const nvmlUUID_v1_t *uuid, nvmlDevice_t *device)
{
	NEED(ml_ready());
	if (uuid == NULL || device == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (uuid->version != NVML_STRUCT_V1(*uuid))
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	if (uuid->type == NVML_UUID_TYPE_ASCII)
		return sim_nvmlDeviceGetHandleByUUID(uuid->value.str, device);
	if (uuid->type != NVML_UUID_TYPE_BINARY)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < count; i++)
		if (memcmp(sim_conf.device[handle[i].device].uuid_raw, uuid->value.bytes, 16) == 0)
			return sim_nvmlDeviceGetHandleByIndex_v2(i, device);
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t sim_nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
	char text[32];

	NEED(ml_ready());
	if (serial == NULL || device == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < count; i++)
		if (sim_nvmlDeviceGetSerial(&handle[i], text, sizeof(text)) == NVML_SUCCESS &&
		    strcmp(text, serial) == 0)
			return sim_nvmlDeviceGetHandleByIndex_v2(i, device);
	return NVML_ERROR_NOT_FOUND;
}

/* One node, one socket: every device but the left out one. */
static nvmlReturn_t set(nvmlDevice_t without, unsigned int *room, nvmlDevice_t *list)
{
	unsigned n = 0;

	NEED(ml_ready());
	if (room == NULL || (list == NULL && *room != 0))
		return NVML_ERROR_INVALID_ARGUMENT;
	for (unsigned i = 0; i < count; i++) {
		if (&handle[i] == without)
			continue;
		if (n < *room)
			list[n] = &handle[i];
		n++;
	}
	*room = *room == 0 || n < *room ? n : *room;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlSystemGetTopologyGpuSet(unsigned int cpu, unsigned int *room, nvmlDevice_t *list)
{
	(void)cpu;
	return set(NULL, room, list);
}

nvmlReturn_t sim_nvmlDeviceGetTopologyNearestGpus(nvmlDevice_t device, int level, unsigned int *room,
						  nvmlDevice_t *list)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	(void)level;
	return set(device, room, list);
}

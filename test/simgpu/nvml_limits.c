/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Limits of memory by cgroup. */
#include "nvml.h"

#include <errno.h>
#include <unistd.h>

static nvmlReturn_t said(int rc)
{
	switch (rc) {
	case 0:
		return NVML_SUCCESS;
	case -ENOENT:
		return (nvmlReturn_t)SIM_NVML_ERROR_OPERATING_SYSTEM;
	case -ESRCH:
		return NVML_ERROR_NOT_FOUND;
	case -EINVAL:
		return NVML_ERROR_INVALID_ARGUMENT;
	default:
		return NVML_ERROR_UNKNOWN;
	}
}

static nvmlReturn_t ready(nvmlDevice_t device, const struct sim_device_conf **conf, const void *limits,
			  const char *name_space)
{
	NEED(ml_device(device, conf));
	if (limits == NULL || name_space == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	return sim_conf.memory_limits ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t sim_nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t device, nvmlSetMemoryLimits_v1_t *limits)
{
	const struct sim_device_conf *conf;

	NEED(ready(device, &conf, limits, limits != NULL ? limits->nameSpace : NULL));
	if (geteuid() != 0)
		return NVML_ERROR_NO_PERMISSION;
	if (limits->softLimit > limits->hardLimit)
		return NVML_ERROR_INVALID_ARGUMENT;
	return said(sim_limit_set((int)(conf - sim_conf.device), limits->nameSpace, limits->softLimit,
				  limits->hardLimit));
}

nvmlReturn_t sim_nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t device, nvmlGetMemoryLimits_v1_t *limits)
{
	const struct sim_device_conf *conf;
	uint64_t soft = 0, hard = 0, used = 0;

	NEED(ready(device, &conf, limits, limits != NULL ? limits->nameSpace : NULL));
	NEED(said(sim_limit_get((int)(conf - sim_conf.device), limits->nameSpace, &soft, &hard, &used)));
	limits->softLimit = soft;
	limits->hardLimit = hard;
	limits->currentUsed = used;
	return NVML_SUCCESS;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Engines beside the multiprocessors. With the key "sessions" of simgpu.conf every process that uses a device
 * encodes a video and captures a screen there; with "mig_attributes" the device has the attributes of a MIG
 * device of its size. */
#define _GNU_SOURCE
#include "control.h"
#include "nvml.h"

#include <stdlib.h>
#include <string.h>

#define FPS 60u
#define LATENCY_US 1000u

static nvmlReturn_t attributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (out == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!sim_conf.mig_attributes)
		return NVML_ERROR_NOT_SUPPORTED;
	*out = (nvmlDeviceAttributes_t){.counts = {(unsigned)conf->sm_count},
					.memorySizeMB = conf->mem_bytes / SIM_MIB};
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetAttributes(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
	return attributes(device, out);
}

nvmlReturn_t sim_nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *out)
{
	return attributes(device, out);
}

/* All domains are as busy as the device. */
nvmlReturn_t sim_nvmlDeviceGetDynamicPstatesInfo(nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info)
{
	nvmlUtilization_t rates;

	NEED(sim_nvmlDeviceGetUtilizationRates(device, &rates));
	if (info == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(info, 0, sizeof(*info));
	for (int i = 0; i <= NVML_DOMAIN_BUS; i++) {
		info->utilization[i].bIsPresent = 1;
		info->utilization[i].percentage = rates.gpu;
	}
	return NVML_SUCCESS;
}

/* Entry n of a list: of the n-th process that uses the device. */
static void write_encoder(void *list, unsigned n, unsigned pid)
{
	((nvmlEncoderSessionInfo_t *)list)[n] = (nvmlEncoderSessionInfo_t){
		.sessionId = n + 1, .pid = pid, .averageFps = FPS, .averageLatency = LATENCY_US };
}

static void write_capture(void *list, unsigned n, unsigned pid)
{
	((nvmlFBCSessionInfo_t *)list)[n] = (nvmlFBCSessionInfo_t){
		.sessionId = n + 1, .pid = pid, .averageFPS = FPS, .averageLatency = LATENCY_US };
}

static unsigned users_of(nvmlDevice_t device, unsigned pid[static SIM_MAX_PROCS])
{
	return sim_conf.sessions != SIM_SESSIONS_NONE ? ml_users(device, pid, SIM_MAX_PROCS) : 0;
}

static nvmlReturn_t sessions(nvmlDevice_t device, unsigned *count, void *list,
			     void (*write)(void *, unsigned, unsigned))
{
	static __thread unsigned pid[SIM_MAX_PROCS];
	const struct sim_device_conf *conf;
	unsigned n, room;

	NEED(ml_device(device, &conf));
	if (count == NULL || (list == NULL && *count > 0))
		return NVML_ERROR_INVALID_ARGUMENT;
	if (sim_conf.sessions == SIM_SESSIONS_COUNTED)
		return NVML_ERROR_NOT_SUPPORTED;
	room = *count;
	*count = n = users_of(device, pid);
	if (room == 0)
		return NVML_SUCCESS;
	if (room < n)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned i = 0; i < n; i++)
		write(list, i, pid[i]);
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetEncoderSessions(nvmlDevice_t device, unsigned int *count,
					      nvmlEncoderSessionInfo_t *list)
{
	return sessions(device, count, list, write_encoder);
}

nvmlReturn_t sim_nvmlDeviceGetFBCSessions(nvmlDevice_t device, unsigned int *count,
					  nvmlFBCSessionInfo_t *list)
{
	return sessions(device, count, list, write_capture);
}

nvmlReturn_t sim_nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *count, unsigned int *fps,
					   unsigned int *latency_us)
{
	static __thread unsigned pid[SIM_MAX_PROCS];
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (count == NULL || fps == NULL || latency_us == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = users_of(device, pid);
	*fps = *count > 0 ? FPS : 0;
	*latency_us = *count > 0 ? LATENCY_US : 0;
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlDeviceGetFBCStats(nvmlDevice_t device, nvmlFBCStats_t *stats)
{
	if (stats == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	return sim_nvmlDeviceGetEncoderStats(device, &stats->sessionsCount, &stats->averageFPS,
					     &stats->averageLatency);
}

/* ---- GPM: without a control device samples only; with one, one metric ---- */

#define GRAPHICS_UTIL 1 /* NVML_GPM_METRIC_GRAPHICS_UTIL */

struct nvmlGpmSample_st {
	uint64_t busy_ns;
	uint64_t active_ns, at_ns; /* of the control device's counter, which moves ten times a second */
};

nvmlReturn_t sim_nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
	NEED(ml_ready());
	if (sample == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	*sample = calloc(1, sizeof(**sample));
	return *sample != NULL ? NVML_SUCCESS : (nvmlReturn_t)SIM_NVML_ERROR_MEMORY;
}

nvmlReturn_t sim_nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	free(sample);
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
	const struct sim_device_conf *conf;
	struct sim_active active = {0};

	NEED(ml_device(device, &conf));
	if (sample == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	active.device = (uint32_t)(conf - sim_conf.device);
	if (sim_control() >= 0 && ioctl(sim_control(), SIM_ACTIVE, &active) != 0)
		return NVML_ERROR_UNKNOWN;
	sample->active_ns = active.active_ns;
	sample->at_ns = active.at_ns;
	sample->busy_ns = sim_time_busy((int)(conf - sim_conf.device), SIM_BUCKET_NS);
	return NVML_SUCCESS;
}

/* Two samples of the same moment of the counter say nothing: 0, as it seems. */
nvmlReturn_t sim_nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *asked)
{
	uint64_t ns, active;

	NEED(ml_ready());
	if (asked == NULL || asked->sample1 == NULL || asked->sample2 == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (asked->version != 1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	ns = asked->sample2->at_ns - asked->sample1->at_ns;
	active = asked->sample2->active_ns - asked->sample1->active_ns;
	for (unsigned i = 0; i < asked->numMetrics; i++) {
		nvmlGpmMetric_t *metric = &asked->metrics[i];

		metric->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		metric->value = 0;
		if (metric->metricId != GRAPHICS_UTIL || sim_control() < 0)
			continue;
		metric->nvmlReturn = NVML_SUCCESS;
		if (ns != 0)
			metric->value = 100.0 * (double)active / (double)ns;
	}
	return NVML_SUCCESS;
}

nvmlReturn_t sim_nvmlGpmMigSampleGet(nvmlDevice_t device, unsigned int instance, nvmlGpmSample_t sample)
{
	(void)instance;
	return sim_nvmlGpmSampleGet(device, sample);
}

nvmlReturn_t sim_nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
	const struct sim_device_conf *conf;

	NEED(ml_device(device, &conf));
	if (support == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (support->version != 1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	support->isSupportedDevice = 1;
	return NVML_SUCCESS;
}

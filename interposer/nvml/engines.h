/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds DOMAINS, SESSIONS, ENCODER, CAPTURE, GPM and GPM_ABLE: the engines of a device beside what lists.h
 * tells of them. What the driver knows by process is the job's own; what it only knows of the whole GPU would
 * tell of the neighbours, so it is left out. */
#ifndef VGPU_NVML_ENGINES_H
#define VGPU_NVML_ENGINES_H

#include "tuning.h"

static void tell_domain(unsigned int *percentage, unsigned int known)
{
	*percentage = known_or(known, *percentage);
}

/* The traffic on the bus is not known by process: the device then has no such domain. */
static void tell_domains(struct vgpu_process *p, nvmlDevice_t device, nvmlGpuDynamicPstatesInfo_t *info)
{
	struct vgpu_usage usage;

	if (!vgpu_usage_now(p, device, &usage))
		return;
	tell_domain(&info->utilization[NVML_DOMAIN_GPU].percentage, usage.sm);
	tell_domain(&info->utilization[NVML_DOMAIN_MEMORY].percentage, usage.memory);
	tell_domain(&info->utilization[NVML_DOMAIN_VIDEO].percentage,
		    usage.encoder > usage.decoder ? usage.encoder : usage.decoder);
	for (int domain = NVML_DOMAIN_BUS; domain < NVML_DOMAINS; domain++)
		memset(&info->utilization[domain], 0, sizeof(info->utilization[domain]));
}

#define WRAP_DOMAINS(symbol, params, args, device, info) \
	WRAP_TELL(symbol, params, args, info, tell_domains(p, device, info))

static unsigned int keep_sessions(struct vgpu_process *p, void *list, unsigned int count, size_t entry_bytes,
				  size_t pid_at)
{
	vgpu_account_sweep(p, false);
	return keep_by_pid(p, list, count, entry_bytes, pid_at);
}

#define KEEP_SESSIONS(p, device, list, count) \
	keep_sessions(p, list, count, sizeof(*(list)), offsetof(__typeof__(*(list)), pid))

/* Without room the driver says how many sessions there are, and that is no error. */
static nvmlReturn_t hand_out_sessions(nvmlReturn_t result, void *list, unsigned int *count, void *all,
				      unsigned int own, size_t entry_bytes)
{
	if (result != NVML_SUCCESS || *count != 0)
		return hand_out_all(result, list, count, all, own, entry_bytes);
	*count = own;
	vgpu_listed_drop(all, entry_bytes);
	return NVML_SUCCESS;
}

#define WRAP_SESSIONS(symbol, params, args, device, count, list, type) \
	WRAP_LIST(symbol, params, args, count, list, type, KEEP_SESSIONS, hand_out_sessions)

/* A device's statistics of its sessions: their number, and their means. */
struct vgpu_sessions {
	unsigned int count, fps, latency_us;
};

static nvmlReturn_t mean_of_sessions(struct vgpu_sessions *mean, bool answered, void *list,
				     size_t entry_bytes, size_t fps_at, size_t latency_at)
{
	unsigned long long fps = 0, latency_us = 0;

	for (unsigned int i = 0; i < mean->count; i++) {
		fps += word_of((char *)list + i * entry_bytes, fps_at);
		latency_us += word_of((char *)list + i * entry_bytes, latency_at);
	}
	mean->fps = mean->count > 0 ? (unsigned int)(fps / mean->count) : 0;
	mean->latency_us = mean->count > 0 ? (unsigned int)(latency_us / mean->count) : 0;
	if (list != NULL)
		vgpu_listed_drop(list, entry_bytes);
	return answered ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* Of the job's own of those that the driver lists. */
#define SESSIONS(name, symbol, type, fps_field)                                                 \
	static nvmlReturn_t name(struct vgpu_process *p, nvmlDevice_t device, struct vgpu_sessions *mean) \
	{                                                                                       \
		vgpu_fn_##symbol *ask = VGPU_REAL(symbol);                                      \
		type *list = ask == NULL ? NULL : vgpu_listed_take(sizeof(*list));              \
		unsigned int listed = VGPU_LISTED_ENTRIES;                                              \
		bool answered = list != NULL && ask(device, &listed, list) == NVML_SUCCESS;         \
                                                                                                \
		mean->count = answered ? KEEP_SESSIONS(p, device, list, listed) : 0;                \
		return mean_of_sessions(mean, answered, list, sizeof(type), offsetof(type, fps_field), offsetof(type, averageLatency)); \
	}

SESSIONS(own_encoder_sessions, nvmlDeviceGetEncoderSessions, nvmlEncoderSessionInfo_t, averageFps)
SESSIONS(own_capture_sessions, nvmlDeviceGetFBCSessions, nvmlFBCSessionInfo_t, averageFPS)

/* A driver that does not list the sessions says nothing of whose they are: the statistics are not supported
 * then. */
static nvmlReturn_t own_encoder(struct vgpu_process *p, vgpu_fn_nvmlDeviceGetEncoderStats *real,
				nvmlDevice_t device, unsigned int *count, unsigned int *fps,
				unsigned int *latency_us)
{
	struct vgpu_sessions mean = {0};
	nvmlReturn_t result = real(device, &mean.count, &mean.fps, &mean.latency_us);

	if (result == NVML_SUCCESS && mean.count > 0)
		result = own_encoder_sessions(p, device, &mean);
	if (result != NVML_SUCCESS)
		return result;
	*count = mean.count;
	*fps = mean.fps;
	*latency_us = mean.latency_us;
	return NVML_SUCCESS;
}

#define WRAP_ENCODER(symbol, params, args, device, count, fps, latency_us)                      \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		if ((count) == NULL || (fps) == NULL || (latency_us) == NULL)                   \
			return real args;                                                       \
		return own_encoder(p, real, device, count, fps, latency_us);                    \
	}

static nvmlReturn_t own_capture(struct vgpu_process *p, vgpu_fn_nvmlDeviceGetFBCStats *real,
				nvmlDevice_t device, nvmlFBCStats_t *stats)
{
	struct vgpu_sessions mean = {0};
	nvmlFBCStats_t all = {0};
	nvmlReturn_t result = real(device, &all);

	if (result == NVML_SUCCESS && all.sessionsCount > 0)
		result = own_capture_sessions(p, device, &mean);
	if (result == NVML_SUCCESS)
		*stats = (nvmlFBCStats_t){mean.count, mean.fps, mean.latency_us};
	return result;
}

#define WRAP_CAPTURE(symbol, params, args, device, stats)                                       \
	WRAP(symbol, params)                                                                    \
	{                                                                                       \
		BEGIN(symbol, args);                                                            \
		return (stats) == NULL ? real args : own_capture(p, real, device, stats);       \
	}

/* GPM counts what the multiprocessors, the memory and the links of the whole GPU do, a hundred times finer
 * than utilisation: of a shared GPU it would show a program its neighbours' work as its own. A job that holds
 * all of the GPU's time has it to itself. */
static bool whole_gpu(nvmlDevice_t device)
{
	int index = vgpu_device_of_nvml(device);

	return index >= 0 &&
	       __atomic_load_n(&vgpu_pages.limits->device[index].sm_percent, __ATOMIC_RELAXED) == 100;
}

#define WRAP_GPM(symbol, params, args, device)                                           \
	WRAP(symbol, params)                                                             \
	{                                                                                \
		BEGIN(symbol, args);                                                     \
		return whole_gpu(device) ? real args : NVML_ERROR_NOT_SUPPORTED;         \
	}

#define WRAP_GPM_ABLE(symbol, params, args, device, support)                             \
	WRAP(symbol, params)                                                             \
	{                                                                                \
		BEGIN(symbol, args);                                                     \
		nvmlReturn_t result = real args;                                         \
                                                                                         \
		if (result == NVML_SUCCESS && (support) != NULL && !whole_gpu(device))   \
			(support)->isSupportedDevice = 0;                                \
		return result;                                                           \
	}

#endif

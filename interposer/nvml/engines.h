/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Kinds DOMAINS, SESSIONS, ENCODER, CAPTURE, GPM and GPM_ABLE: the engines of a device beside what lists.h
 * tells of them. What the driver knows by process is the job's own; what it only knows of the whole GPU would tell of
 * the neighbours, so it is left out. */
#ifndef VGPU_NVML_ENGINES_H
#define VGPU_NVML_ENGINES_H

static void tell_domain(unsigned int *percentage, unsigned int known)
{
	*percentage = known_or(known, *percentage);
}

/* The traffic on the bus is not known by process: the device then has no such domain. */
#define WRAP_DOMAINS(symbol, params, args, device, info)                                                   \
	WRAP(symbol, params)                                                                               \
	{                                                                                                  \
		BEGIN(symbol, args);                                                                       \
		nvmlReturn_t result = real args;                                                           \
		struct vgpu_usage usage;                                                                   \
                                                                                                           \
		if (result != NVML_SUCCESS || (info) == NULL || !vgpu_usage_now(p, device, &usage))        \
			return result;                                                                     \
		tell_domain(&(info)->utilization[NVML_DOMAIN_GPU].percentage, usage.sm);                   \
		tell_domain(&(info)->utilization[NVML_DOMAIN_MEMORY].percentage, usage.memory);            \
		tell_domain(&(info)->utilization[NVML_DOMAIN_VIDEO].percentage,                            \
			    usage.encoder > usage.decoder ? usage.encoder : usage.decoder);                \
		for (int domain = NVML_DOMAIN_BUS; domain < NVML_DOMAINS; domain++)                        \
			memset(&(info)->utilization[domain], 0, sizeof((info)->utilization[domain]));      \
		return result;                                                                             \
	}

#define KEEP_SESSIONS(p, device, list, count) (vgpu_account_sweep(p, false), KEEP_BY_PID(p, list, count, .pid))

/* Without room the driver says how many sessions there are, and that is no error. */
#define HAND_OUT_SESSIONS(result, list, count, all, own)                                 \
	do {                                                                             \
		if ((count) == 0)                                                        \
			(count) = (own);                                                 \
		else                                                                     \
			HAND_OUT(result, list, count, all, own);                         \
	} while (0)

#define WRAP_SESSIONS(symbol, params, args, device, count, list, type) \
	WRAP_LIST(symbol, params, args, device, count, list, type, KEEP_SESSIONS, HAND_OUT_SESSIONS)

/* What the statistics of a device are of its sessions: how many, and their means. */
struct vgpu_sessions {
	unsigned int count, fps, latency_us;
};

#define SESSIONS(name, symbol, type, fps_field)                                                              \
	static nvmlReturn_t name(struct vgpu_process *p, nvmlDevice_t device, struct vgpu_sessions *mean)    \
	{                                                                                                    \
		vgpu_fn_##symbol *ask = VGPU_REAL(symbol);                                                   \
		type *list = ask == NULL ? NULL : vgpu_listed_take(sizeof(*list));                           \
		unsigned int listed = VGPU_LISTED;                                                           \
		unsigned long long fps = 0, latency_us = 0;                                                  \
                                                                                                             \
		*mean = (struct vgpu_sessions){0};                                                           \
		if (list == NULL)                                                                            \
			return NVML_ERROR_NOT_SUPPORTED;                                                     \
		if (ask(device, &listed, list) != NVML_SUCCESS) {                                            \
			vgpu_listed_drop(list, sizeof(*list));                                               \
			return NVML_ERROR_NOT_SUPPORTED;                                                     \
		}                                                                                            \
		mean->count = KEEP_SESSIONS(p, device, list, listed);                                        \
		for (unsigned int i = 0; i < mean->count; i++) {                                             \
			fps += list[i].fps_field;                                                            \
			latency_us += list[i].averageLatency;                                                \
		}                                                                                            \
		if (mean->count > 0) {                                                                       \
			mean->fps = (unsigned int)(fps / mean->count);                                       \
			mean->latency_us = (unsigned int)(latency_us / mean->count);                         \
		}                                                                                            \
		vgpu_listed_drop(list, sizeof(*list));                                                       \
		return NVML_SUCCESS;                                                                         \
	}

SESSIONS(own_encoder_sessions, nvmlDeviceGetEncoderSessions, nvmlEncoderSessionInfo_t, averageFps)
SESSIONS(own_capture_sessions, nvmlDeviceGetFBCSessions, nvmlFBCSessionInfo_t, averageFPS)

/* A driver that does not list the sessions says nothing of whose they are: the statistics are not supported then. */
#define WRAP_ENCODER(symbol, params, args, device, count, fps, latency_us)               \
	WRAP(symbol, params)                                                             \
	{                                                                                \
		BEGIN(symbol, args);                                                     \
		struct vgpu_sessions mean = {0};                                         \
		nvmlReturn_t result;                                                     \
                                                                                         \
		if ((count) == NULL || (fps) == NULL || (latency_us) == NULL)            \
			return real args;                                                \
		result = real(device, &mean.count, &mean.fps, &mean.latency_us);         \
		if (result == NVML_SUCCESS && mean.count > 0)                            \
			result = own_encoder_sessions(p, device, &mean);                 \
		if (result == NVML_SUCCESS) {                                            \
			*(count) = mean.count;                                           \
			*(fps) = mean.fps;                                               \
			*(latency_us) = mean.latency_us;                                 \
		}                                                                        \
		return result;                                                           \
	}

#define WRAP_CAPTURE(symbol, params, args, device, stats)                                        \
	WRAP(symbol, params)                                                                     \
	{                                                                                        \
		BEGIN(symbol, args);                                                             \
		nvmlFBCStats_t all = {0};                                                        \
		struct vgpu_sessions mean = {0};                                                 \
		nvmlReturn_t result;                                                             \
                                                                                                 \
		if ((stats) == NULL)                                                             \
			return real args;                                                        \
		result = real(device, &all);                                                     \
		if (result == NVML_SUCCESS && all.sessionsCount > 0)                             \
			result = own_capture_sessions(p, device, &mean);                         \
		if (result == NVML_SUCCESS)                                                      \
			*(stats) = (nvmlFBCStats_t){mean.count, mean.fps, mean.latency_us};      \
		return result;                                                                   \
	}

/* GPM counts what the multiprocessors, the memory and the links of the whole GPU do, a hundred times finer than utilisation: of
 * a shared GPU it would show a program its neighbours' work as its own. A job that holds all of the GPU's time has it
 * to itself. */
static bool whole_gpu(nvmlDevice_t device)
{
	int index = vgpu_device_of_nvml(device);

	return index >= 0 && __atomic_load_n(&vgpu_pages.limits->device[index].sm_percent, __ATOMIC_RELAXED) == 100;
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

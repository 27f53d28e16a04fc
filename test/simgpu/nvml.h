/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Inside the simulated libnvidia-ml; exports_nvml.c exports what is sim_NAME here. */
#ifndef SIMGPU_NVML_H
#define SIMGPU_NVML_H

#include "sim.h"
#include "sim_types.h"

#define VGPU_NVML(kind, symbol, params, args, ...) nvmlReturn_t sim_##symbol params;
#include "api/nvml.def"
#define VGPU_NVML(kind, symbol, params, args, ...) nvmlReturn_t sim_##symbol params;
#include "extra.def"

/* A handle is one of these; its index in sim_conf is what it stands for. */
struct nvmlDevice_st {
	int device;
};

#define NEED(call)                                 \
	do {                                       \
		nvmlReturn_t need_ = (call);       \
		if (need_ != NVML_SUCCESS)         \
			return need_;              \
	} while (0)

/* nvml_init.c */
nvmlReturn_t ml_ready(void);
/* A handle that this library gave out, of a device that is not lost. */
nvmlReturn_t ml_device(nvmlDevice_t device, const struct sim_device_conf **conf);
/* nvml_process.c: the pids of the processes that use the device, at most so many */
unsigned ml_users(nvmlDevice_t device, unsigned *pid, unsigned room);
nvmlReturn_t ml_text(const char *text, char *to, unsigned int length);

#endif

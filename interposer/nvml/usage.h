/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Utilisation of the slice: what the job's own processes made of it, as the driver tells it by process; that
 * of the multiprocessors as vgpud counts it, where it does (process/counted.h). Every row that tells a
 * program of utilisation takes it from vgpu_usage_since, so another source of it goes there. */
#ifndef VGPU_NVML_USAGE_H
#define VGPU_NVML_USAGE_H

#include "process/process.h"
#include "tuning.h"

/* In percent; above 100 where the driver does not tell it by process. */
struct vgpu_usage {
	unsigned int sm, memory, encoder, decoder, jpeg, optical_flow;
};

/* Over the time since last, in microseconds since 1970; over as long as is remembered when it is 0. False
 * when utilisation by process is not known, of no engine. */
bool vgpu_usage_since(struct vgpu_process *p, nvmlDevice_t device, unsigned long long last,
		      struct vgpu_usage *usage);
/* Over the last two seconds: a driver takes up to one sample a second. */
bool vgpu_usage_now(struct vgpu_process *p, nvmlDevice_t device, struct vgpu_usage *usage);

/* The percent for samples of this type; above 100 when the driver has no figure by process. */
unsigned int vgpu_usage_of_type(const struct vgpu_usage *usage, nvmlSamplingType_t type);

/* Whether it is a process of the job that uses CUDA or NVML. */
bool vgpu_usage_own(struct vgpu_process *p, unsigned int pid);

/* Leaves the job's own samples; how many these are. */
unsigned int vgpu_usage_keep_samples(struct vgpu_process *p, nvmlProcessUtilizationSample_t *list,
				     unsigned int count);
unsigned int vgpu_usage_keep_infos(struct vgpu_process *p, nvmlProcessUtilizationInfo_v1_t *list,
				   unsigned int count);

/* Room for VGPU_LISTED_ENTRIES entries, NULL when there is none. */
void *vgpu_listed_take(size_t entry_bytes);
void vgpu_listed_drop(void *list, size_t entry_bytes);

#endif

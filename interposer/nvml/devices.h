/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The granted GPUs as NVML's devices. Their indices count in the order of the limits page, which is
 * the order of CUDA_VISIBLE_DEVICES and so of the CUDA ordinals; a GPU that the driver does not show
 * to the process is skipped in both. The results are the driver's. */
#ifndef VGPU_NVML_DEVICES_H
#define VGPU_NVML_DEVICES_H

#include "process/process.h"

nvmlReturn_t vgpu_nvml_count(unsigned int *count);
nvmlReturn_t vgpu_nvml_by_index(unsigned int index, nvmlDevice_t *handle);
nvmlReturn_t vgpu_nvml_index_of(nvmlDevice_t handle, unsigned int *index);

/* Whether the step has a slice of it. */
bool vgpu_nvml_granted(nvmlDevice_t handle);

#endif

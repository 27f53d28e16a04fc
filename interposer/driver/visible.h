/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * CUDA_VISIBLE_DEVICES as a program means it: of the GPUs of its step. */
#ifndef VGPU_DRIVER_VISIBLE_H
#define VGPU_DRIVER_VISIBLE_H

/* Before the driver reads the variable: numbers count the GPUs of the step in the order of the limits page,
 * as NVML's indices do; without the variable all of these are meant, and a GPU that is not the step's is
 * none. The driver would count all GPUs that it can open, which under preload isolation are those of the
 * node. */
void vgpu_visible_translate(void);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * CUDA_VISIBLE_DEVICES as a program means it: of the GPUs of its step. */
#ifndef VGPU_DRIVER_VISIBLE_H
#define VGPU_DRIVER_VISIBLE_H

#include "process/process.h"

/* Numbers count the GPUs of the step in the order of the limits page, as NVML's indices do; without the
 * variable all of these are meant, and a GPU that is not the step's is none. The driver would count all GPUs
 * that it can open, in an order of its own; under preload isolation those are the node's. So it finds UUIDs
 * there, and then the program and its children what was there before: programs read numbers out of it. False:
 * the driver has started and does not read it any more, and there is no end. */
bool vgpu_visible_begin(struct vgpu_process *p);
void vgpu_visible_end(struct vgpu_process *p, bool started);

#endif

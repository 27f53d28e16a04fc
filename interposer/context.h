/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a context itself costs on the device. Only the driver knows: it is what NVML reports for
 * this process beyond what the account has already. Where NVML cannot tell, nothing is charged. */
#ifndef VGPU_CONTEXT_H
#define VGPU_CONTEXT_H

#include "process.h"

/* A context exists now. False when what it costs does not fit; the caller then destroys it. */
bool vgpu_context_made(struct vgpu_process *p, CUcontext context, CUdevice ordinal, bool primary);

/* The context is gone, with all memory that was allocated in it. */
void vgpu_context_gone(struct vgpu_process *p, CUcontext context);

/* The primary context of the device may be gone: the driver says. */
void vgpu_context_primary_released(struct vgpu_process *p, CUdevice ordinal);

#endif

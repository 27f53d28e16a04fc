/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Inside the simulated libcuda: channel groups on the node's control device, and kernels that run on
 * them. Where there is none, kernels take their time by gputime.c. All with the lock held. */
#ifndef SIMGPU_DRV_CONTROL_H
#define SIMGPU_DRV_CONTROL_H

#include "drv.h"

CUresult drv_control_start(void); /* a client, and the visible devices */
bool drv_controlled(void);
CUresult drv_control_context(CUcontext ctx); /* makes its groups */
void drv_control_context_end(CUcontext ctx);

/* A kernel goes to the GPU; 0: it cannot. */
uint64_t drv_control_submit(CUstream stream, uint64_t ns);
bool drv_control_ended(uint64_t ticket, uint64_t *ns);
/* The lock is let go until a kernel has ended, but not for long. */
void drv_control_wait(void);

#endif

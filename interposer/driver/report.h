/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver itself says that this process uses. */
#ifndef VGPU_DRIVER_REPORT_H
#define VGPU_DRIVER_REPORT_H

#include "process/process.h"

/* Bytes of this process on the device as NVML reports them, everything included. False when it
 * cannot tell: no NVML, or a pid namespace that it does not know the pids of. It takes some 20 µs
 * and more, and waits for NVML to start the first time. */
bool vgpu_report_bytes(struct vgpu_process *p, uint32_t device, uint64_t *bytes);

/* A context is about to be made on the device, and the driver asked about it. Until NVML has started and
 * found the device 13 to 16 ms go by, a context takes 100 (H200, driver 580): that is done meanwhile. */
void vgpu_report_prepare(struct vgpu_process *p, uint32_t device);
/* Waits until that has ended, at most some seconds: a program that goes on may end, and NVML with it.
 * Whether NVML can be asked, which it cannot yet where a library's constructor makes the context. */
bool vgpu_report_ready(struct vgpu_process *p);
/* Whether that is so only until it has started. */
bool vgpu_report_is_coming(struct vgpu_process *p);

#endif

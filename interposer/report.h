/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver itself says that this process uses. */
#ifndef VGPU_REPORT_H
#define VGPU_REPORT_H

#include "process.h"

/* Bytes of this process on the device as NVML reports them, everything included. False when it
 * cannot tell: no NVML, or a pid namespace that it does not know the pids of. It takes some 50 µs,
 * and some milliseconds the first time. */
bool vgpu_report_bytes(struct vgpu_process *p, uint32_t device, uint64_t *bytes);

#endif

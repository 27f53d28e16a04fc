/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What vgpud counts of the job's GPU time. */
#ifndef VGPU_PROCESS_COUNTED_H
#define VGPU_PROCESS_COUNTED_H

#include "api/layout.h"

#include <stdbool.h>

/* Of one device of the job. False where vgpud has not counted it for two seconds before now. */
bool vgpu_counted(uint32_t device, uint64_t now_ns, struct vgpu_time_device *out);

#endif

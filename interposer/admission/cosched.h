/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * GPUs of one job that work together: a kernel that waits for its peer on another GPU keeps its own busy
 * meanwhile. If each GPU had its pauses by itself, they would wait for each other's pauses, and spend the
 * share on that. So once such a wait was seen they pause together for a while. */
#ifndef VGPU_ADMISSION_COSCHED_H
#define VGPU_ADMISSION_COSCHED_H

#include "process/process.h"

#include <stdbool.h>

/* So much longer than expected a kernel takes that waits for another GPU. */
#define VGPU_COSCHED_LATE_NS 4000000u
/* How often to look again whether the others have paid. */
#define VGPU_COSCHED_LOOK_NS 300000u

/* A kernel was seen to take that much longer. */
void vgpu_cosched_seen(uint64_t now_ns);

/* Whether nothing is to begin on this device, because another one of the job owes time, pauses for it, and
 * would keep this one waiting. */
bool vgpu_cosched_holds(struct vgpu_process *p, uint32_t device);

#endif

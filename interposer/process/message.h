/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The few lines that a user gets to see on standard error, each at most once per process. */
#ifndef VGPU_PROCESS_MESSAGE_H
#define VGPU_PROCESS_MESSAGE_H

#include "process/process.h"

void vgpu_message_limit(struct vgpu_process *p, uint32_t device, uint64_t asked_bytes);
void vgpu_message_not_granted(struct vgpu_process *p);
/* p may be NULL. */
void vgpu_message_refused(struct vgpu_process *p);

#endif

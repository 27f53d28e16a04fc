/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * In what order the processes of a job have the credit that they wait for. Otherwise it goes to whoever
 * wakes first when there is some, and on a busy machine that is the same one again and again. */
#ifndef VGPU_QUEUE_H
#define VGPU_QUEUE_H

#include "process.h"

/* The caller has waited for credit since since_ns, and there should be some at from_ns. Says so to the
 * others, and returns when it should look: the one that has waited longest does so first. */
uint64_t vgpu_queue_wait(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t from_ns, uint64_t now_ns);

/* It waits no more. since_ns 0: it never did. */
void vgpu_queue_leave(struct vgpu_process *p, uint64_t since_ns);

#endif

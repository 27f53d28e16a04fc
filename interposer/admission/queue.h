/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * In what order the processes of a job have the credit that they wait for. Otherwise it goes to whoever
 * wakes first when there is some: on a busy machine the same one again and again, on an idle one always
 * another one, and then the GPU spends its time on going from process to process. They have it in rounds: who
 * has waited longest goes first, and goes on for some milliseconds of the GPU's time. */
#ifndef VGPU_ADMISSION_QUEUE_H
#define VGPU_ADMISSION_QUEUE_H

#include "process/process.h"

#include <stdbool.h>

/* The caller has waited for credit since since_ns, and there should be some at from_ns. Says so to the
 * others, and returns when it should look: the one whose round it is does so first. */
uint64_t vgpu_queue_wait(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t from_ns,
			 uint64_t now_ns);

/* Whether the credit that there is now is left to another one, whose round it is. Not for long: it may have
 * been stopped. */
bool vgpu_queue_gives_way(struct vgpu_process *p, uint32_t device, uint64_t now_ns);

/* It waits no more, and has so much of the credit. since_ns 0: it never did wait. */
void vgpu_queue_leave(struct vgpu_process *p, uint32_t device, uint64_t since_ns, uint64_t taken_ns);

#endif

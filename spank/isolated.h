/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which processes of a step are isolated, and when: isolate.h says what that is. Pure C, also for the
 * child between fork and exec. */
#ifndef VGPU_ISOLATED_H
#define VGPU_ISOLATED_H

#include <stdbool.h>
#include <stdint.h>

#include "plan.h"

/* vgpu_isolated_step isolates slurmstepd before its first task, and sees to it that Slurm moves tasks and
 * scripts of a job that has a container (container.h) into an isolated one. With a container of a kind
 * that it does not know it does nothing: the tasks isolate themselves. Returns 0, or -1 with one line in
 * why. */
int vgpu_isolated_step(const struct vgpu_plan *plan, uint32_t job, char why[VGPU_REASON_BYTES]);

/* vgpu_isolated_task isolates a task that Slurm has moved to where it is not. Returns 0, or -1 with a line
 * in why. */
int vgpu_isolated_task(const struct vgpu_plan *plan, char why[VGPU_REASON_BYTES]);

/* vgpu_isolated_end lets go of what was mounted in the step's folder, so that it can be removed from here. */
void vgpu_isolated_end(const struct vgpu_plan *plan);

/* Whether this process is in a namespace that one of these made, or the process that forked it did. */
bool vgpu_is_isolated(void);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Steps of jobs that hold whole GPUs. Slurm numbers the GPUs that it picked, and the prolog may have had to
 * choose others; the task gets the numbers of its own. */
#ifndef VGPU_WHOLE_H
#define VGPU_WHOLE_H

#include <slurm/spank.h>

#include "plan.h"

/* Reads the GPUs that Slurm gave to the step. slurmstepd sets or removes the variable before any plugin runs;
 * a user who forged it would choose among his job's own GPUs. */
void vgpu_whole_ask(spank_t sp, struct vgpu_step *step);

/* In the task's own process, after fork: no Go. Returns 0, or -1 after a line for the user. */
int vgpu_whole_bind(spank_t sp, const struct vgpu_plan *plan);

#endif

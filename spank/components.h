/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * One set of options for each component of a heterogeneous job or step. Slurm keeps one for all: what
 * was typed for a component stays set for the next, and srun sends those of the last to every step. */
#ifndef VGPU_COMPONENTS_H
#define VGPU_COMPONENTS_H

#include <stdbool.h>

#include <slurm/spank.h>

#include "plan.h"

/* vgpu_components_new_job is called with each component's options as srun, sbatch or salloc makes a
 * new job of them. Slurm then carries none of them to a step: a step has its job's slice anyway. */
void vgpu_components_new_job(spank_t sp);

/* vgpu_components_new_step is called with each component's options as srun makes a step of a job.
 * Returns 0, or -1 after a message if Slurm would give one component the options of another. */
int vgpu_components_new_step(const char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES]);

/* vgpu_components_whole_job says, in slurmstepd, that the step was started by the srun that made the
 * job: the options that came with it are the job's, if not another component's. */
bool vgpu_components_whole_job(spank_t sp);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's options: what was typed. Their table is rows.h. */
#ifndef VGPU_OPTIONS_H
#define VGPU_OPTIONS_H

#include <slurm/spank.h>

#include "plan.h"

/* vgpu_options_register makes all options known to Slurm. Returns 0, or -1 after a message. */
int vgpu_options_register(spank_t sp);

/* vgpu_options_take moves out what was typed for each option since it was last called; "" is not
 * given. sbatch, salloc and srun come here once for each component of a heterogeneous job. */
void vgpu_options_take(char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES]);

/* vgpu_options_defaults copies the VGPU_* variables of this process. */
void vgpu_options_defaults(char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES]);

/* vgpu_options_uncarry takes a new job's options out of what Slurm carries: the variables by which
 * sbatch would read those of one component again for the next, and srun those of a job for its steps. */
void vgpu_options_uncarry(spank_t sp);

#endif

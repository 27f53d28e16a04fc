/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's options: their table, and what was typed. */
#ifndef VGPU_OPTIONS_H
#define VGPU_OPTIONS_H

#include <slurm/spank.h>

#include "plan.h"

/* vgpu_options_register makes all options known to Slurm. Returns 0, or -1 after a message. */
int vgpu_options_register(spank_t sp);

/* vgpu_option_name is the option's name without dashes, in table order; NULL past the end. */
const char *vgpu_option_name(int index);

/* vgpu_options_given copies what was typed for each option; "" is not given. */
void vgpu_options_given(char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES]);

/* vgpu_options_recover fills options that got lost on the way to this node from the job's
 * environment: Slurm 22.05 and 23.02 drop them for sbatch --export=NONE. */
void vgpu_options_recover(spank_t sp, char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES]);

/* vgpu_options_defaults copies the VGPU_* variables of this process. */
void vgpu_options_defaults(char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES]);

/* vgpu_options_forget_stale drops, from the control environment of a new job, options that were
 * not given to it: srun copies those of the job around it before any plugin runs. */
void vgpu_options_forget_stale(spank_t sp);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a new job must not inherit from the job in which it is submitted. */
#ifndef VGPU_INHERIT_H
#define VGPU_INHERIT_H

/* vgpu_disinherit removes from this process's environment the options of a job around it, and what
 * the plugin set for that job's tasks. For sbatch, salloc and an srun that makes an allocation;
 * never in slurmstepd. */
void vgpu_disinherit(void);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The GRES that a step was given of its job's. No variable and no SPANK item has those that are only
 * counted, so the plugin queries the controller. */
#ifndef VGPU_STEPGRES_H
#define VGPU_STEPGRES_H

#include "plan.h"

/* vgpu_stepgres_ask fills external, or gres_known, gres and gres_elsewhere, of a step whose job and
 * number are set.
 * Where the controller does not tell, gres_known stays 0 and the reason is logged. */
void vgpu_stepgres_ask(struct vgpu_step *step, const char *node);

#endif

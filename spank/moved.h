/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Tasks that another plugin has moved since they were isolated: Pyxis moves them into a container, which
 * may be another job's, or have no limits. For the child between fork and exec. */
#ifndef VGPU_MOVED_H
#define VGPU_MOVED_H

#include <stdbool.h>

#include "plan.h"

/* Keeps, as root, what the other one looks at as the user from within the container. */
void vgpu_moved_prepare(const struct vgpu_plan *plan);

/* Whether the plan holds where this process is now. With slices it has to see the folder of one of its job's
 * steps there; without, no GPU that is not its job's. */
bool vgpu_moved_is_held(const struct vgpu_plan *plan);

#endif

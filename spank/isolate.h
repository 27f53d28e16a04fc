/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Strict isolation of one task. Pure C, for the child between fork and exec: no Go, no locks. */
#ifndef VGPU_ISOLATE_H
#define VGPU_ISOLATE_H

#include "plan.h"

/* vgpu_isolate moves the calling process, which is root, into a mount namespace of its own where
 *   - the step's folder stands at /run/slurm-vgpu/self,
 *   - the step's ld.so.preload stands over /etc/ld.so.preload, read-only,
 *   - the nodes of other GPUs look as always but cannot be opened (EACCES).
 * Outside nothing changes, except that the two mount points are created if they are missing.
 * Returns 0, or -1 with one line in why that names the object; the process must not go on then. */
int vgpu_isolate(const struct vgpu_plan *plan, char why[VGPU_REASON_BYTES]);

#endif

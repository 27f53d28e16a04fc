/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Strict isolation of a step. Pure C, also for the child between fork and exec: no Go, no locks. */
#ifndef VGPU_ISOLATE_H
#define VGPU_ISOLATE_H

#include "plan.h"

/* vgpu_isolate moves the calling thread, which is root, into a mount namespace of its own where
 *   - the step's folder stands at /run/slurm-vgpu/self, with the interposer and the job's pages in it,
 *   - the step's ld.so.preload stands over /etc/ld.so.preload, read-only,
 *   - the pages of other jobs are not there,
 *   - guards stand over the driver's libraries, and these in the step's folder (guard/),
 *   - all of the folder stands at /dev/slurm-vgpu as well, for containers,
 *   - Podman starts anew (podman.h),
 *   - the nodes of other GPUs look as always but cannot be opened (EACCES),
 *   - the nodes of the step's GPUs are its own, where the node's are closed.
 * Outside nothing changes, except that the mount points are created if they are missing. pages is -1, or a
 * tree of the job's pages (open_tree) where the namespace is cut off from the node's.
 * Returns 0, or -1 with one line in why that names the object; the process must not go on then. */
int vgpu_isolate(const struct vgpu_plan *plan, int pages, char why[VGPU_REASON_BYTES]);

/* vgpu_isolate_let_go lets go of what is mounted in the step's folder: what is mounted on in one's own
 * namespace cannot be removed there. */
void vgpu_isolate_let_go(void);

#endif

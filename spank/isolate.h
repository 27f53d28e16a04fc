/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Strict isolation of a step. Pure C, also for the child between fork and exec: no Go, no locks. */
#ifndef VGPU_ISOLATE_H
#define VGPU_ISOLATE_H

#include <stdbool.h>

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
 * tree of the job's pages (container.h) where the namespace is cut off from the node's.
 * Returns 0, or -1 with one line in why that names the object; the process must not go on then. */
int vgpu_isolate(const struct vgpu_plan *plan, int pages, char why[VGPU_REASON_BYTES]);

/* vgpu_isolate_step does the same for slurmstepd, before its first task, and sees to it that Slurm
 * moves tasks and scripts of a job that has a container (container.h) into an isolated one. With a
 * container of a kind that it does not know it does nothing: the tasks isolate themselves. */
int vgpu_isolate_step(const struct vgpu_plan *plan, uint32_t job, char why[VGPU_REASON_BYTES]);

/* vgpu_isolate_end lets go of what was mounted in the step's folder, so that it can be removed from here. */
void vgpu_isolate_end(const struct vgpu_plan *plan);

/* Whether this process is in a namespace that these two made, or the process that forked it did. */
bool vgpu_is_isolated(void);

#endif

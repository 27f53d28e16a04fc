/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Steps of jobs that have a mount namespace of their own, as job_container/tmpfs makes it: with a
 * /tmp of the job's. Slurm keeps that namespace as a file that is mounted in a folder named like the
 * job, and moves each task and each task prolog and epilog into it (22.05:
 * src/plugins/job_container/tmpfs/job_container_tmpfs.c, container_p_join). That file is not carried
 * into a namespace that slurmstepd makes for itself: the kernel leaves mount namespaces out of copies. */
#ifndef VGPU_CONTAINER_H
#define VGPU_CONTAINER_H

#include <stdint.h>

#include "plan.h"

enum vgpu_container {
	VGPU_CONTAINER_NONE,
	VGPU_CONTAINER_FILE,  /* as job_container/tmpfs and namespace/tmpfs have it */
	VGPU_CONTAINER_OTHER, /* as namespace/linux (25.11) has it, which can bring other namespaces along */
};

/* Says what the job has, and the path of its file. */
enum vgpu_container vgpu_container_find(uint32_t job, char path[VGPU_PATH_BYTES]);

/* Makes a copy of the job's namespace in which the plan is carried out. Returns a descriptor of it,
 * which is to stay open as long as this process lives, or -1 with a line in why. */
int vgpu_container_twin(const char *path, const struct vgpu_plan *plan, char why[VGPU_REASON_BYTES]);

/* Lets Slurm find the twin by the file's path, in this process's mount namespace alone. The folder is
 * one in which only root writes. Returns 0, or -1 with a line in why. */
int vgpu_container_replace(const char *path, int twin, const char *folder, char why[VGPU_REASON_BYTES]);

#endif

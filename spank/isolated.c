/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "isolated.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "container.h"
#include "isolate.h"

/* The mount namespaces that were made; 0: none yet. */
static ino_t own, twin;

/* 0 if it cannot be told, which is no namespace's. */
static ino_t mount_namespace(void)
{
	struct stat st;
	return stat("/proc/self/ns/mnt", &st) == 0 ? st.st_ino : 0;
}

bool vgpu_is_isolated(void)
{
	ino_t here = mount_namespace();
	return here != 0 && (here == own || here == twin);
}

/* Isolates this process, in a namespace that others join by their descent alone. */
static int isolate_here(const struct vgpu_plan *plan, char *why)
{
	if (vgpu_isolate(plan, -1, why) != 0)
		return -1;
	own = mount_namespace();
	return 0;
}

int vgpu_isolated_step(const struct vgpu_plan *plan, uint32_t job, char why[VGPU_REASON_BYTES])
{
	char container[VGPU_PATH_BYTES];
	struct stat st;
	int copy = -1;

	switch (vgpu_container_find(job, container)) {
	case VGPU_CONTAINER_NONE:
		break;
	case VGPU_CONTAINER_OTHER: /* Slurm could not find it from elsewhere: each task isolates itself */
		return 0;
	case VGPU_CONTAINER_FILE:
		copy = vgpu_container_twin(container, plan, why);
		if (copy < 0)
			return -1;
		if (fstat(copy, &st) != 0) {
			snprintf(why, VGPU_REASON_BYTES, "stat the twin of the job's container: %s",
				 strerror(errno));
			return -1;
		}
		twin = st.st_ino;
	}
	if (isolate_here(plan, why) != 0)
		return -1;
	return copy < 0 ? 0 : vgpu_container_replace(container, copy, plan->step_dir, why);
}

int vgpu_isolated_task(const struct vgpu_plan *plan, char why[VGPU_REASON_BYTES])
{
	return vgpu_is_isolated() ? 0 : isolate_here(plan, why);
}

void vgpu_isolated_end(const struct vgpu_plan *plan)
{
	if (vgpu_is_isolated() && plan->strict && plan->library[0])
		vgpu_isolate_let_go();
}

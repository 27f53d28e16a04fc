/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The plugin's arguments on its plugstack.conf line. */
#ifndef VGPU_ARGUMENTS_H
#define VGPU_ARGUMENTS_H

#include "plan.h"

struct vgpu_arguments {
	char run_dir[VGPU_PATH_BYTES]; /* as written: %n is still to be replaced */
};

/* vgpu_arguments_read checks and takes key=value arguments; what is not given has its default.
 * Returns 0, or -1 with one line in why. */
int vgpu_arguments_read(int count, char *words[], struct vgpu_arguments *out,
			char why[VGPU_REASON_BYTES]);

/* vgpu_run_dir replaces %n by the node's name. node may be NULL if run_dir has no %n.
 * Returns 0, or -1 with one line in why. */
int vgpu_run_dir(const struct vgpu_arguments *arguments, const char *node,
		 char run_dir[VGPU_PATH_BYTES], char why[VGPU_REASON_BYTES]);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The way into Go. It is a library of its own, which is loaded where there is something to do for it:
 * Slurm loads the plugin for every step of every job on the node, and a Go runtime is most of its price. */
#ifndef VGPU_LOADER_H
#define VGPU_LOADER_H

#include "plan.h"

/* The functions in Go (spank/launch/export.go). */
struct vgpu_launch {
	void (*check_option)(int index, char *text, char *reason);
	void (*encode_request)(struct vgpu_request *request);
	void (*plan)(struct vgpu_step *step, struct vgpu_plan *plan);
	void (*finish_step)(struct vgpu_step *step, char *says, char *reason);
	void (*drop_preload)(struct vgpu_env *env);
	void (*drop_binds)(struct vgpu_env *env);
};

/* vgpu_launch is the way into Go in a process that may enter it (process.h), or NULL with one line in why. */
const struct vgpu_launch *vgpu_launch(char why[VGPU_REASON_BYTES]);

#endif

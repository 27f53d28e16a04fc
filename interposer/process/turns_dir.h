/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Files in the folder of boards and of jobs' pages. */
#ifndef VGPU_PROCESS_TURNS_DIR_H
#define VGPU_PROCESS_TURNS_DIR_H

#include "api/layout.h"

#include <stdbool.h>
#include <sys/stat.h>

/* Of a file there. */
struct vgpu_turns_path {
	char text[VGPU_TURNS_DIR_BYTES + VGPU_UUID_BYTES + 1];
};

/* Empty where there is no such folder: nothing lies there. */
struct vgpu_turns_path vgpu_turns_path(const char *name);

/* That of this job's, by one of the VGPU_…_FILE of layout.h. */
struct vgpu_turns_path vgpu_turns_own(const char *format);

/* A regular file that only its owner may write; -1: there is none. Nobody may be cancelled in here. */
int vgpu_turns_open(const struct vgpu_turns_path *path, int flags, struct stat *st);
bool vgpu_turns_is_owners_alone(const struct stat *st);

#endif

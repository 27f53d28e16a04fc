/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Files in the folder of the job's pages. */
#ifndef VGPU_PROCESS_PAGES_DIR_H
#define VGPU_PROCESS_PAGES_DIR_H

#include "api/layout.h"

#include <stdbool.h>
#include <sys/stat.h>

/* Of a file there. */
struct vgpu_pages_path {
	char text[VGPU_PAGES_DIR_BYTES + VGPU_UUID_BYTES + 1];
};

/* By one of the VGPU_…_FILE of layout.h. Empty where there is no such folder: nothing lies there. */
struct vgpu_pages_path vgpu_pages_path(const char *name);

/* A regular file that only its owner may write; -1: there is none. Nobody may be cancelled in here. */
int vgpu_pages_open(const struct vgpu_pages_path *path, int flags, struct stat *st);
bool vgpu_pages_is_owners_alone(const struct stat *st);

#endif

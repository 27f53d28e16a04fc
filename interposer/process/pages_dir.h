/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Files in the folder of the job's pages. */
#ifndef VGPU_PROCESS_PAGES_DIR_H
#define VGPU_PROCESS_PAGES_DIR_H

#include <sys/stat.h>

/* One of the VGPU_…_FILE of layout.h: a regular file that only its owner may write; -1: there is none. No
 * thread may be cancelled in here. */
int vgpu_pages_open(const char *name, int flags, struct stat *st);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What mkstep is made of. */
#ifndef VGPU_TEST_MKSTEP_H
#define VGPU_TEST_MKSTEP_H

#include "api/layout.h"

#include <sys/types.h>

/* Says errno of what was being done; 1. */
int complain(const char *what);
/* NULL with errno set. Created, and given its size and mode, when the flags say so. */
void *map_page(const char *path, size_t size, int flags, mode_t mode);

/* The job's claims, empty. Not 0 when that cannot be. */
int make_claims(const struct vgpu_limits *limits);
/* The job's page of channel groups, empty. Not 0 when that cannot be. */
int make_groups(const struct vgpu_limits *limits);
/* The job's slices on the boards of their GPUs, with the shares as they are now. */
int put_on_boards(const struct vgpu_limits *limits);

#endif

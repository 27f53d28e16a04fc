/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Finding and believing the step's folder. */
#ifndef VGPU_PROCESS_STEP_H
#define VGPU_PROCESS_STEP_H

#include "process/process.h"

/* Maps the step's limits page. On failure *why says what is wrong, for a message. */
const struct vgpu_limits *vgpu_step_limits(int *folder_fd, const char **why);

/* Maps the ledger in the folder of these limits; NULL as above. */
struct vgpu_ledger *vgpu_step_ledger(int folder_fd, const struct vgpu_limits *limits, const char **why);

#endif

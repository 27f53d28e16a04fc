/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * May Go run in this process? Its threads stay behind at a fork: in a child, or in a slurmd that
 * was loaded before it went into the background, a call would hang at the first garbage
 * collection. So Go is entered only in the very process that said so. */
#ifndef VGPU_PROCESS_H
#define VGPU_PROCESS_H

#include <stdbool.h>

/* vgpu_allow_go marks this process, and not its children, as one that may enter Go. */
void vgpu_allow_go(void);

bool vgpu_may_enter_go(void);

#endif

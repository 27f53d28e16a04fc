/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The job's page of channel groups. */
#ifndef VGPU_CHANNELS_PAGE_H
#define VGPU_CHANNELS_PAGE_H

#include "channels/own.h"

/* Writes down the groups of this process, in the place of its slot. By calls of the kernel alone, in which no
 * thread is cancelled. False when that cannot be done now. */
bool vgpu_channels_write(struct vgpu_process *p);

#endif

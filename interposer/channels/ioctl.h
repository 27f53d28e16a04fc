/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The two ways into our ioctl: by its name, and by a place where the driver keeps its address. */
#ifndef VGPU_CHANNELS_IOCTL_H
#define VGPU_CHANNELS_IOCTL_H

#include <stdbool.h>

bool vgpu_ioctl_is_ours(const void *address);

/* Returns our ioctl, which notes the call and then calls the function that stood in the place before: the
 * first one that was given here; NULL: the next library's. */
void *vgpu_ioctl_in_place_of(void *before);

#endif

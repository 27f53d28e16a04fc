/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver schedules of this process: it is written down for vgpud, which gives the slices of a GPU
 * their time (docs/verified/time-from-outside.md). */
#ifndef VGPU_CHANNELS_CHANNELS_H
#define VGPU_CHANNELS_CHANNELS_H

#include "channels/handles.h"
#include "process/process.h"

/* Notes a handle that came or went. While another thread reads events, it reads this one too, and so does a
 * signal handler's own thread: the caller does not wait, except for about a second where the reader has
 * left no room for more. */
void vgpu_channels_note(struct vgpu_process *p, const struct vgpu_handle_event *event);

/* The process has got its slot. */
void vgpu_channels_begin(struct vgpu_process *p);

/* Before a driver begins, which has this function: sees to it that what it calls by the name ioctl comes to
 * ours. Where that cannot be done the page says that there is more than it names. */
void vgpu_channels_reach(struct vgpu_process *p, const void *of_driver);

/* Whether groups may be made unseen. */
void vgpu_channels_unseen(struct vgpu_process *p, bool unseen);

#endif

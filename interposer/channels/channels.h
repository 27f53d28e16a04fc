/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What the driver schedules of this process: it is written down for vgpud, which gives the slices of a GPU
 * their time (docs/verified/time-from-outside.md). */
#ifndef VGPU_CHANNELS_CHANNELS_H
#define VGPU_CHANNELS_CHANNELS_H

#include "channels/handles.h"
#include "process/process.h"

/* A handle came or went. What another thread is at is left to that one, and so is what a signal handler sees
 * while its own thread is at it: nobody waits, but for about a second where a thread that is at it has
 * left more undone than has room. */
void vgpu_channels_note(struct vgpu_process *p, const struct vgpu_handle_event *event);

/* The process has got its slot. */
void vgpu_channels_begin(struct vgpu_process *p);

/* Before a driver begins, which has this function: sees to it that what it calls by the name ioctl comes to
 * ours. Where that cannot be done the page says that there is more than it names. */
void vgpu_channels_reach(struct vgpu_process *p, const void *of_driver);

/* Whether groups may be made that nobody sees. */
void vgpu_channels_unseen(struct vgpu_process *p, bool unseen);

#endif

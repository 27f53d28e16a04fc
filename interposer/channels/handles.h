/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * The driver's handles that the program's libcuda has: which of them are channel groups that compute. Pure,
 * and in no more memory than it is given; the caller sees to it that one thread runs it at a time. A table of
 * zeros is an empty one. */
#ifndef VGPU_CHANNELS_HANDLES_H
#define VGPU_CHANNELS_HANDLES_H

#include "api/layout.h"
#include "tuning.h"

#include <stdbool.h>

enum vgpu_handle {
	VGPU_HANDLE_FREE = 1, /* goes, and with it all that is below it */
	VGPU_HANDLE_DEVICE,
	VGPU_HANDLE_SUBDEVICE,
	VGPU_HANDLE_GROUP,
	VGPU_HANDLE_CHANNEL,
};

struct vgpu_handle_event {
	uint32_t what; /* enum vgpu_handle */
	int32_t fd;
	uint32_t client, parent, object;
	uint32_t value; /* of a device its instance, of a group its engine */
};

struct vgpu_handles {
	uint32_t device_count, subdevice_count, group_count;
	uint32_t lost; /* that found no room here either */
	struct vgpu_handle_of {
		uint32_t client, parent, object, instance;
	} device[VGPU_HANDLE_DEVICES], subdevice[VGPU_HANDLE_DEVICES];
	struct vgpu_handles_group {
		uint32_t client, device, object, engine;
		int32_t fd;
		uint32_t channels, unlisted;
		uint32_t channel[VGPU_HANDLE_CHANNELS];
	} group[VGPU_HANDLE_GROUPS];
};

/* Notes an object that was made or freed. Returns whether the groups to write down have changed. */
bool vgpu_handles_note(struct vgpu_handles *handles, const struct vgpu_handle_event *event);

/* How many groups there are to be written down, and how many beyond that. */
uint32_t vgpu_handles_count(const struct vgpu_handles *handles);
uint32_t vgpu_handles_more(const struct vgpu_handles *handles);

/* One of them as it is written down. */
struct vgpu_channel_group vgpu_handles_group(const struct vgpu_handles *handles, uint32_t index);

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "channels/handles.h"
#include "tuning.h"

#include <stddef.h>
#include <string.h>

/* NV2080_ENGINE_TYPE_GR0 to GR7: groups of other engines copy, encode or decode. */
#define FIRST_ENGINE 1u
#define LAST_ENGINE 8u

static struct vgpu_handle_of *find_listed(struct vgpu_handle_of *list, uint32_t count, uint32_t client,
				   uint32_t object)
{
	for (uint32_t i = 0; i < count; i++) {
		if (list[i].client == client && list[i].object == object)
			return &list[i];
	}
	return NULL;
}

/* A name that comes again means another one. */
static void put_handle(struct vgpu_handle_of *list, uint32_t *count, const struct vgpu_handle_event *event)
{
	struct vgpu_handle_of *place = find_listed(list, *count, event->client, event->object);

	if (place == NULL && *count == VGPU_HANDLE_DEVICES)
		return;
	if (place == NULL)
		place = &list[(*count)++];
	*place = (struct vgpu_handle_of){event->client, event->parent, event->object, event->value};
}

/* Whether the object goes: a program that frees a client names it twice, and the objects below go with it. */
static bool goes(const struct vgpu_handle_event *event, uint32_t client, uint32_t parent, uint32_t object)
{
	return event->client == client &&
	       (event->object == client || event->object == object || event->object == parent);
}

static void drop_handles(struct vgpu_handle_of *list, uint32_t *count, const struct vgpu_handle_event *event)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < *count; i++) {
		if (!goes(event, list[i].client, list[i].parent, list[i].object))
			list[kept++] = list[i];
	}
	*count = kept;
}

static bool drop_channel(struct vgpu_handles_group *group, uint32_t object)
{
	for (uint32_t i = 0; i < group->channels; i++) {
		if (group->channel[i] != object)
			continue;
		group->channels--;
		memmove(&group->channel[i], &group->channel[i + 1],
			(group->channels - i) * sizeof(group->channel[0]));
		return true;
	}
	return false;
}

static bool drop_groups(struct vgpu_handles *handles, const struct vgpu_handle_event *event)
{
	bool changed = false;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < handles->group_count; i++) {
		struct vgpu_handles_group *group = &handles->group[i];

		if (goes(event, group->client, group->device, group->object))
			continue;
		if (group->client == event->client)
			changed |= drop_channel(group, event->object);
		if (kept != i)
			handles->group[kept] = *group;
		kept++;
	}
	changed |= kept != handles->group_count;
	handles->group_count = kept;
	return changed;
}

static bool is_below_a_group(const struct vgpu_handles *handles, uint32_t client, uint32_t device)
{
	for (uint32_t i = 0; i < handles->group_count; i++) {
		if (handles->group[i].client == client && handles->group[i].device == device)
			return true;
	}
	return false;
}

static bool add_group(struct vgpu_handles *handles, const struct vgpu_handle_event *event)
{
	if (event->value < FIRST_ENGINE || event->value > LAST_ENGINE)
		return false;
	drop_groups(handles, event);
	if (handles->group_count == VGPU_HANDLE_GROUPS) {
		handles->lost++;
		return true;
	}
	handles->group[handles->group_count++] = (struct vgpu_handles_group){
		.client = event->client,
		.device = event->parent,
		.object = event->object,
		.engine = event->value,
		.fd = event->fd,
	};
	return true;
}

static bool add_channel(struct vgpu_handles *handles, const struct vgpu_handle_event *event)
{
	for (uint32_t i = 0; i < handles->group_count; i++) {
		struct vgpu_handles_group *group = &handles->group[i];

		if (group->client != event->client || group->object != event->parent)
			continue;
		drop_channel(group, event->object);
		if (group->channels == VGPU_HANDLE_CHANNELS)
			group->unlisted++;
		else
			group->channel[group->channels++] = event->object;
		return true;
	}
	return false;
}

bool vgpu_handles_note(struct vgpu_handles *handles, const struct vgpu_handle_event *event)
{
	switch (event->what) {
	case VGPU_HANDLE_FREE:
		drop_handles(handles->device, &handles->device_count, event);
		drop_handles(handles->subdevice, &handles->subdevice_count, event);
		return drop_groups(handles, event);
	case VGPU_HANDLE_DEVICE:
		put_handle(handles->device, &handles->device_count, event);
		return is_below_a_group(handles, event->client, event->object);
	case VGPU_HANDLE_SUBDEVICE:
		put_handle(handles->subdevice, &handles->subdevice_count, event);
		return is_below_a_group(handles, event->client, event->parent);
	case VGPU_HANDLE_GROUP:
		return add_group(handles, event);
	case VGPU_HANDLE_CHANNEL:
		return add_channel(handles, event);
	}
	return false;
}

uint32_t vgpu_handles_count(const struct vgpu_handles *handles)
{
	return handles->group_count < VGPU_MAX_GROUPS ? handles->group_count : VGPU_MAX_GROUPS;
}

uint32_t vgpu_handles_more(const struct vgpu_handles *handles)
{
	return handles->group_count - vgpu_handles_count(handles) + handles->lost;
}

static uint32_t subdevice_of(const struct vgpu_handles *handles, const struct vgpu_handles_group *group)
{
	for (uint32_t i = 0; i < handles->subdevice_count; i++) {
		if (handles->subdevice[i].client == group->client &&
		    handles->subdevice[i].parent == group->device)
			return handles->subdevice[i].object;
	}
	return 0;
}

struct vgpu_channel_group vgpu_handles_group(const struct vgpu_handles *handles, uint32_t index)
{
	const struct vgpu_handles_group *group = &handles->group[index];
	const struct vgpu_handle_of *device = find_listed((struct vgpu_handle_of *)handles->device,
						   handles->device_count, group->client, group->device);
	struct vgpu_channel_group out = {
		.client = group->client,
		.device = group->device,
		.group = group->object,
		.engine = group->engine,
		.device_instance = device == NULL ? UINT32_MAX : device->instance,
		.fd = group->fd,
		.subdevice = subdevice_of(handles, group),
		.channel_count = group->channels,
	};

	/* Those that are not kept are counted as long as there are as many as can be listed. */
	if (group->channels >= VGPU_GROUP_CHANNELS)
		out.channel_count += group->unlisted;
	for (uint32_t i = 0; i < group->channels && i < VGPU_GROUP_CHANNELS; i++)
		out.channel[i] = group->channel[i];
	return out;
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Which of a process's handles are channel groups that compute, as they come and go. */
#include "channels/handles.h"
#include "harness.h"

#include <stdint.h>

static struct vgpu_handles handles;

static bool note(enum vgpu_handle what, uint32_t client, uint32_t parent, uint32_t object, uint32_t value)
{
	struct vgpu_handle_event event = {what, 7, client, parent, object, value};

	return vgpu_handles_note(&handles, &event);
}

static bool goes(uint32_t client, uint32_t object)
{
	return note(VGPU_HANDLE_FREE, client, 0, object, 0);
}

/* Two GPUs of one client: devices 10 and 20. */
static void two_devices(void)
{
	note(VGPU_HANDLE_DEVICE, 1, 1, 10, 5);
	note(VGPU_HANDLE_SUBDEVICE, 1, 10, 11, 0);
	note(VGPU_HANDLE_DEVICE, 1, 1, 20, 3);
	note(VGPU_HANDLE_SUBDEVICE, 1, 20, 21, 0);
}

static void a_group_has_its_device_and_channels(void)
{
	struct vgpu_channel_group group;

	two_devices();
	CHECK(note(VGPU_HANDLE_GROUP, 1, 20, 30, 2));
	CHECK(note(VGPU_HANDLE_CHANNEL, 1, 30, 31, 0));
	CHECK(note(VGPU_HANDLE_CHANNEL, 1, 30, 32, 0));
	CHECK(!note(VGPU_HANDLE_CHANNEL, 1, 99, 33, 0)); /* of no group that computes */
	CHECK(!note(VGPU_HANDLE_CHANNEL, 2, 30, 34, 0)); /* another client's */
	CHECK_IS(vgpu_handles_count(&handles), 1);
	CHECK_IS(vgpu_handles_more(&handles), 0);
	group = vgpu_handles_group(&handles, 0);
	CHECK(group.client == 1 && group.device == 20 && group.group == 30 && group.engine == 2);
	CHECK(group.device_instance == 3 && group.fd == 7 && group.subdevice == 21);
	CHECK(group.channel_count == 2 && group.channel[0] == 31 && group.channel[1] == 32);
	CHECK_IS(group.channel[2], 0);
}

static void groups_that_do_not_compute_are_none(void)
{
	two_devices();
	CHECK(!note(VGPU_HANDLE_GROUP, 1, 10, 30, 0));
	CHECK(!note(VGPU_HANDLE_GROUP, 1, 10, 40, 9)); /* NV2080_ENGINE_TYPE_COPY0 */
	CHECK(!note(VGPU_HANDLE_CHANNEL, 1, 40, 41, 0));
	CHECK_IS(vgpu_handles_count(&handles), 0);
}

static void what_is_freed_goes_with_all_below_it(void)
{
	two_devices();
	note(VGPU_HANDLE_GROUP, 1, 10, 30, 1);
	note(VGPU_HANDLE_CHANNEL, 1, 30, 31, 0);
	note(VGPU_HANDLE_CHANNEL, 1, 30, 32, 0);
	note(VGPU_HANDLE_GROUP, 1, 20, 40, 1);
	note(VGPU_HANDLE_GROUP, 2, 20, 50, 1);
	CHECK(!goes(1, 77)); /* memory, say */
	CHECK(!goes(2, 31));
	CHECK(goes(1, 31));
	CHECK_IS(vgpu_handles_group(&handles, 0).channel_count, 1);
	CHECK_IS(vgpu_handles_group(&handles, 0).channel[0], 32);
	CHECK(goes(1, 30));
	CHECK_IS(vgpu_handles_count(&handles), 2);
	CHECK_IS(vgpu_handles_group(&handles, 0).group, 40);
	CHECK(goes(1, 20)); /* the device; that of another client is another one */
	CHECK_IS(vgpu_handles_count(&handles), 1);
	CHECK_IS(vgpu_handles_group(&handles, 0).group, 50);
	note(VGPU_HANDLE_GROUP, 1, 10, 30, 1);
	CHECK(goes(1, 1));
	CHECK_IS(vgpu_handles_count(&handles), 1);
	CHECK_IS(handles.device_count, 0);
	CHECK_IS(handles.subdevice_count, 0);
}

static void a_subdevice_that_comes_late_is_seen(void)
{
	note(VGPU_HANDLE_GROUP, 1, 10, 30, 1);
	CHECK_IS(vgpu_handles_group(&handles, 0).subdevice, 0);
	CHECK_IS(vgpu_handles_group(&handles, 0).device_instance, UINT32_MAX);
	CHECK(note(VGPU_HANDLE_DEVICE, 1, 1, 10, 4));
	CHECK(note(VGPU_HANDLE_SUBDEVICE, 1, 10, 11, 0));
	CHECK(!note(VGPU_HANDLE_SUBDEVICE, 1, 20, 21, 0));
	CHECK_IS(vgpu_handles_group(&handles, 0).subdevice, 11);
	CHECK_IS(vgpu_handles_group(&handles, 0).device_instance, 4);
}

static void a_name_that_comes_again_is_another_group(void)
{
	two_devices();
	note(VGPU_HANDLE_GROUP, 1, 10, 30, 1);
	note(VGPU_HANDLE_CHANNEL, 1, 30, 31, 0);
	note(VGPU_HANDLE_GROUP, 1, 20, 30, 1);
	CHECK_IS(vgpu_handles_count(&handles), 1);
	CHECK_IS(vgpu_handles_group(&handles, 0).device, 20);
	CHECK_IS(vgpu_handles_group(&handles, 0).channel_count, 0);
}

static void the_thirty_third_group_is_one_more(void)
{
	two_devices();
	for (uint32_t i = 0; i < VGPU_MAX_GROUPS; i++)
		note(VGPU_HANDLE_GROUP, 1, 10, 1000 + i, 1);
	CHECK_IS(vgpu_handles_more(&handles), 0);
	note(VGPU_HANDLE_GROUP, 1, 10, 2000, 1);
	CHECK_IS(vgpu_handles_count(&handles), VGPU_MAX_GROUPS);
	CHECK_IS(vgpu_handles_more(&handles), 1);
	CHECK(goes(1, 1000));
	CHECK_IS(vgpu_handles_more(&handles), 0);
	CHECK_IS(vgpu_handles_group(&handles, VGPU_MAX_GROUPS - 1).group, 2000);
	for (uint32_t i = 0; i < 2 * VGPU_HANDLE_GROUPS; i++)
		note(VGPU_HANDLE_GROUP, 1, 10, 3000 + i, 1);
	CHECK_IS(vgpu_handles_more(&handles), 2 * VGPU_HANDLE_GROUPS);
	/* Of those that nobody kept none is known to have gone. */
	CHECK(goes(1, 1));
	CHECK_IS(vgpu_handles_count(&handles), 0);
	CHECK_IS(vgpu_handles_more(&handles), VGPU_HANDLE_GROUPS + VGPU_MAX_GROUPS);
}

static void channels_beyond_the_sixteenth_are_counted(void)
{
	struct vgpu_channel_group group;

	two_devices();
	note(VGPU_HANDLE_GROUP, 1, 10, 30, 1);
	for (uint32_t i = 0; i < 70; i++)
		note(VGPU_HANDLE_CHANNEL, 1, 30, 100 + i, 0);
	group = vgpu_handles_group(&handles, 0);
	CHECK_IS(group.channel_count, 70);
	CHECK_IS(group.channel[15], 115);
	for (uint32_t i = 0; i < 20; i++)
		CHECK(goes(1, 100 + i));
	group = vgpu_handles_group(&handles, 0);
	CHECK_IS(group.channel_count, 50);
	CHECK_IS(group.channel[0], 120);
	for (uint32_t i = 20; i < 60; i++)
		CHECK(goes(1, 100 + i));
	group = vgpu_handles_group(&handles, 0);
	CHECK_IS(group.channel_count, 4); /* as many as are listed */
	CHECK(group.channel[3] == 163 && group.channel[4] == 0);
}

/* Whatever comes, in whatever order: nothing is written down that root would not take. */
static void anything_may_come(void)
{
	uint64_t seed = 1;

	for (int i = 0; i < 300000; i++) {
		uint32_t word[5];

		for (int k = 0; k < 5; k++) {
			seed = seed * 6364136223846793005ull + 1442695040888963407ull;
			word[k] = (uint32_t)(seed >> 33);
		}
		note(1 + word[0] % 5, 1 + word[1] % 3, 1 + word[2] % 40, 1 + word[3] % 300, word[4] % 10);
		CHECK(vgpu_handles_count(&handles) <= VGPU_MAX_GROUPS);
		for (uint32_t g = 0; i % 100 == 0 && g < vgpu_handles_count(&handles); g++) {
			struct vgpu_channel_group group = vgpu_handles_group(&handles, g);

			CHECK(group.engine >= 1 && group.engine <= 8);
			for (uint32_t c = 0; c < VGPU_GROUP_CHANNELS; c++)
				CHECK((group.channel[c] != 0) == (c < group.channel_count));
		}
	}
}

int main(void)
{
	CASE(a_group_has_its_device_and_channels);
	CASE(groups_that_do_not_compute_are_none);
	CASE(what_is_freed_goes_with_all_below_it);
	CASE(a_subdevice_that_comes_late_is_seen);
	CASE(a_name_that_comes_again_is_another_group);
	CASE(the_thirty_third_group_is_one_more);
	CASE(channels_beyond_the_sixteenth_are_counted);
	CASE(anything_may_come);
	return summary();
}

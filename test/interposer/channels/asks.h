/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What a libcuda asks of the driver's control device, in each way in which it can be asked. */
#ifndef VGPU_TEST_CHANNELS_ASKS_H
#define VGPU_TEST_CHANNELS_ASKS_H

#include "../helpers/control.h"
#include "harness.h"

#include <stdbool.h>
#include <sys/ioctl.h>

#define CLIENT 0xc1d00001u
#define DEVICE 0x5c000001u
#define SUBDEVICE 0x5c000002u
#define GROUP 0x5c000010u
#define FD 1000

enum how { LONG, SHORT, LONG_BY_ADDRESS, SHORT_BY_ADDRESS, HOWS };

static enum how how;
static uint32_t status; /* of what is asked */

static int ask(unsigned number, size_t bytes, void *argument)
{
	struct by_address outer = {number, (uint32_t)bytes, (uintptr_t)argument};

	if (how == LONG_BY_ADDRESS || how == SHORT_BY_ADDRESS)
		return ioctl(FD, _IOWR('F', 211, struct by_address), &outer);
	return ioctl(FD, _IOC(_IOC_READ | _IOC_WRITE, 'F', number, bytes), argument);
}

static int make(uint32_t client, uint32_t parent, uint32_t object, uint32_t class, void *params)
{
	struct made made = {client, parent, object, class, (uintptr_t)params, {0}};
	bool brief = how == SHORT || how == SHORT_BY_ADDRESS;

	made.rest[brief ? 1 : 4] = status;
	return ask(0x2B, brief ? 32 : 48, &made);
}

static int make_group(uint32_t device, uint32_t object, uint32_t engine)
{
	uint32_t params[5] = {0, 0, 0, engine};

	return make(CLIENT, device, object, 0xA06C, params);
}

static int drop(uint32_t object)
{
	struct freed freed = {CLIENT, 0, object, status};

	return ask(0x29, sizeof(freed), &freed);
}

static void make_device(uint32_t instance)
{
	uint32_t params[14] = {instance};

	CHECK_IS(make(CLIENT, CLIENT, CLIENT, 0x41, NULL), 0);
	CHECK_IS(make(CLIENT, CLIENT, DEVICE, 0x80, params), 0);
	CHECK_IS(make(CLIENT, DEVICE, SUBDEVICE, 0x2080, NULL), 0);
}

#endif

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A program that speaks to the control device itself. The driver's accounting has its memory all the same,
 * so NVML shows the process. */
#define _GNU_SOURCE
#include "control.h"
#include "escapes.h"
#include "sim.h"
#include "vgpu-cheat.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#define AHEAD 8

static int device_fd;
static uint32_t client;

static uint32_t make(uint32_t parent, uint32_t class, void *params, uint32_t bytes)
{
	struct escape_alloc arg = {.client = client,
				   .parent = parent,
				   .class = class,
				   .params = (uintptr_t)params,
				   .params_bytes = bytes};

	return syscall(SYS_ioctl, device_fd, ESCAPE_ALLOC, &arg) == 0 && arg.status == 0 ? arg.object : 0;
}

static uint32_t make_channel(void)
{
	uint32_t device[DEVICE_PARAMS] = {0}, group[GROUP_PARAMS] = {0, 0, 0, ENGINE_COMPUTES}, at;
	struct sim_where where = {.device = 0};

	client = make(0, CLASS_CLIENT, NULL, 0);
	if (client == 0 || syscall(SYS_ioctl, device_fd, SIM_WHERE, &where) != 0)
		return 0;
	device[0] = where.instance;
	at = make(client, CLASS_DEVICE, device, sizeof(device));
	at = at != 0 ? make(at, CLASS_GROUP, group, sizeof(group)) : 0;
	return at != 0 ? make(at, CLASS_CHANNEL, NULL, 0) : 0;
}

static int submit(uint32_t channel, unsigned long long us)
{
	struct sim_submit work = {.client = client, .channel = channel, .ns = us * 1000};

	return syscall(SYS_ioctl, device_fd, SIM_SUBMIT, &work) == 0;
}

int cheat_raw(unsigned long long us)
{
	struct sim_ends ends = {.count = AHEAD};
	uint32_t channel;
	int good;

	if (sim_attach() != 0 || (device_fd = sim_control_open()) < 0) {
		fprintf(stderr, "vgpu-cheat: this node has no control device\n");
		return 1;
	}
	channel = make_channel();
	good = channel != 0 && sim_proc_register() == 0 && sim_context_take(0) == 0;
	while (good) {
		for (uint32_t i = 0; i < ends.count && good; i++)
			good = submit(channel, us);
		good = good && syscall(SYS_ioctl, device_fd, SIM_WAIT, &ends) == 0;
	}
	fprintf(stderr, "vgpu-cheat: the control device refuses\n");
	return 1;
}

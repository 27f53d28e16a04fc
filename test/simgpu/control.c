/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "control.h"

#include "sim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

int sim_control_open(void)
{
	char path[PATH_MAX];
	int fd;

	snprintf(path, sizeof(path), "%s/control/nvidiactl", sim_conf.dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	return errno == ENOENT || errno == ENOTDIR ? -1 : -2;
}

static int asked_by = -1;

static void open_once(void)
{
	asked_by = sim_control_open();
}

int sim_control(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, open_once);
	return asked_by;
}

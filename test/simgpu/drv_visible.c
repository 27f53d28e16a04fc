/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * CUDA_VISIBLE_DEVICES as the driver reads it: numbers or UUID prefixes, the list ends at the
 * first entry that names no device, and naming one twice leaves none. */
#define _GNU_SOURCE
#include "drv.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* CUDA's own order: fastest first, unless the user asks for that of the bus, which is NVML's. */
static int enumerate(int *device)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	bool by_bus = order != NULL && strcmp(order, "PCI_BUS_ID") == 0;
	int count = 0;

	for (int i = 0; i < sim_conf.device_count; i++) {
		int at = count;

		if (sim_conf.device[i].hidden || sim_conf.device[i].lost)
			continue;
		while (!by_bus && at > 0 &&
		       sim_conf.device[device[at - 1]].speed < sim_conf.device[i].speed) {
			device[at] = device[at - 1];
			at--;
		}
		device[at] = i;
		count++;
	}
	return count;
}

static int by_uuid(const char *text, size_t length, const int *all, int count)
{
	int found = -1;

	for (int i = 0; i < count; i++)
		if (strncasecmp(sim_conf.device[all[i]].uuid, text, length) == 0) {
			if (found >= 0)
				return -1; /* a prefix must name one */
			found = i;
		}
	return found;
}

static int by_number(const char *text, int count)
{
	char *end;
	long n;

	errno = 0;
	n = strtol(text, &end, 10); /* what follows the digits is ignored, as the driver does */
	return end != text && errno == 0 && n >= 0 && n < count ? (int)n : -1;
}

int drv_visible(const char *text, int *device)
{
	int all[SIM_MAX_DEVICES], total = enumerate(all), count = 0;
	bool uuids;

	if (text == NULL) {
		memcpy(device, all, sizeof(all));
		return total;
	}
	uuids = strncmp(text, "GPU-", 4) == 0;
	while (*text != '\0') {
		size_t length = strcspn(text, ",");
		int n;

		if (uuids)
			n = strncmp(text, "GPU-", 4) == 0 ? by_uuid(text, length, all, total) : -1;
		else
			n = by_number(text, total);
		if (n < 0)
			break;
		for (int i = 0; i < count; i++)
			if (device[i] == all[n])
				return 0;
		device[count++] = all[n];
		text += length;
		text += *text == ',';
	}
	return count;
}

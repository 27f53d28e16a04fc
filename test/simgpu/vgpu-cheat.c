/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A vgpu-busy that cheats: it finds its own handles on the simulated control device, as any program can, and
 * makes the driver's calls on them, by system calls that no preloaded library sees. */
#define _GNU_SOURCE
#include "driver_symbols.h"
#include "escapes.h"
#include "option.h"
#include "vgpu-cheat.h"

#include <dirent.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define CLIENTS 0xc1d00000u /* the driver counts them from here */
#define MOST_CLIENTS 0x4000u
#define OBJECTS 0x5c000001u /* libcuda names what it makes from here */
#define MOST_OBJECTS 0x80u
#define MOST_CONTEXTS 4096

int busy_main(int argc, char **argv); /* of vgpu-busy.c */

static int device_fd = -1;
static uint32_t client, group;

static int usage(FILE *to, int status)
{
	fprintf(to,
		"usage: vgpu-cheat HOW [OPTION of vgpu-busy ...]\n"
		"       vgpu-cheat raw [MICROSECONDS]\n"
		"Keeps a simulated GPU busy as vgpu-busy does, and cheats while it does:\n"
		"  slice     gives itself a time slice of 1 s, each millisecond\n"
		"  enable    enables its channels, each millisecond\n"
		"  idle      lets no kernel of its be cut\n"
		"  contexts  makes contexts without end\n"
		"  raw       uses no library at all: kernels of 1000 or so many microseconds, until it is\n"
		"            killed\n"
		"Exit status: that of vgpu-busy.\n");
	return status;
}

uint32_t cheat_control(int fd, uint32_t of, uint32_t object, uint32_t command, void *params, uint32_t bytes)
{
	struct escape_control arg = {.client = of,
				     .object = object,
				     .command = command,
				     .params = (uintptr_t)params,
				     .params_bytes = bytes};

	return syscall(SYS_ioctl, fd, ESCAPE_CONTROL, &arg) == 0 ? arg.status : UINT32_MAX;
}

/* Of another open file's clients the driver says nothing. */
static bool is_own_client(int fd, uint32_t guess)
{
	uint32_t gpus[32];

	return cheat_control(fd, guess, guess, CALL_GPUS, gpus, sizeof(gpus)) == 0;
}

static bool has_group(int fd, uint32_t of)
{
	uint64_t us;

	for (uint32_t i = 0; i < MOST_OBJECTS; i++)
		if (cheat_control(fd, of, OBJECTS + i, CALL_SLICE, &us, sizeof(us)) == 0) {
			device_fd = fd;
			client = of;
			group = OBJECTS + i;
			return true;
		}
	return false;
}

static bool find_behind(int fd)
{
	for (uint32_t i = 0; i < MOST_CLIENTS; i++)
		if (is_own_client(fd, CLIENTS + i))
			return has_group(fd, CLIENTS + i);
	return false;
}

/* The first group is the one that computes. */
static bool find_own(void)
{
	DIR *fds = opendir("/proc/self/fd");
	struct dirent *entry;
	bool found = false;

	while (fds != NULL && !found && (entry = readdir(fds)) != NULL) {
		char path[300], to[300] = "";

		snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
		if (readlink(path, to, sizeof(to) - 1) > 0 && strstr(to, "nvidiactl") != NULL)
			found = find_behind(atoi(entry->d_name));
	}
	if (fds != NULL)
		closedir(fds);
	return found;
}

static void nap_ms(long ms)
{
	const struct timespec nap = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

	nanosleep(&nap, NULL);
}

static void set_slice(void)
{
	uint64_t us = 1000000;

	cheat_control(device_fd, client, group, CALL_SET_SLICE, &us, sizeof(us));
}

static const uint32_t *all_objects(uint32_t *next)
{
	*next = *next == 0 ? OBJECTS : *next + 1;
	return *next < OBJECTS + MOST_OBJECTS ? next : NULL;
}

/* Which object is the subdevice, and which are channels, is found by trying. */
static void enable(void)
{
	struct disable_params params = {.count = 1, .clients = {client}};

	for (uint32_t on = 0; all_objects(&on) != NULL;)
		for (uint32_t i = 1; i <= 8; i++) {
			params.channels[0] = group + i;
			if (cheat_control(device_fd, client, on, CALL_DISABLE, &params, sizeof(params)) != 0)
				break;
		}
}

static void wait_for_idle(void)
{
	uint32_t params[8] = {1 /* sets compute */, group, 0, 0 /* waits */};

	for (uint32_t on = 0; all_objects(&on) != NULL;)
		cheat_control(device_fd, client, on, CALL_SET_PREEMPTION, params, sizeof(params));
}

static void make_contexts(void)
{
	static int (*create)(void **, unsigned, int), (*pop)(void **);
	static int made;
	const struct driver_symbol need[] = {{"cuCtxCreate_v2", &create}, {"cuCtxPopCurrent_v2", &pop}};
	void *context;

	if (create == NULL && !driver_symbols(need, 2))
		return;
	if (made < MOST_CONTEXTS && create(&context, 0, 0) == 0) {
		pop(&context);
		made++;
	}
}

static void *cheat(void *how)
{
	void (*act)(void);

	memcpy(&act, how, sizeof(act));
	while (!find_own())
		nap_ms(10);
	for (;;) {
		act();
		nap_ms(1);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*act)(void);
	} ways[] = {
		{"slice", set_slice}, {"enable", enable}, {"idle", wait_for_idle}, {"contexts", make_contexts}};
	unsigned long long us = 1000;
	pthread_t thread;

	if (argc == 2 && strcmp(argv[1], "--help") == 0)
		return usage(stdout, 0);
	if (argc == 3 && strcmp(argv[1], "raw") == 0 &&
	    !option_number("vgpu-cheat", "raw", argv[2], 1, 10000000, &us))
		return 2;
	if ((argc == 2 || argc == 3) && strcmp(argv[1], "raw") == 0)
		return cheat_raw(us);
	for (size_t i = 0; argc > 1 && i < sizeof(ways) / sizeof(ways[0]); i++)
		if (strcmp(argv[1], ways[i].name) == 0) {
			if (pthread_create(&thread, NULL, cheat, (void *)(uintptr_t)&ways[i].act) != 0)
				return 1;
			return busy_main(argc - 1, argv + 1);
		}
	return usage(stderr, 2);
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "loader.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "process.h"

/* The release is in its name, so that the one that a slurmstepd has loaded finds its own while another is
 * put into place. */
#define LIBRARY "spank_vgpu_launch-" VGPU_VERSION ".so"

/* A package manager puts the two parts into place one after the other: rpm takes a moment. */
#define WAIT_MS 3000
#define POLL_MS 20

/* It stands beside the plugin, whose folder root alone may write: whoever could put another one there could
 * replace the plugin. */
static bool beside_us(char path[VGPU_PATH_BYTES], char why[VGPU_REASON_BYTES])
{
	Dl_info us;
	const char *slash;

	if (!dladdr((void *)beside_us, &us) || !us.dli_fname || !(slash = strrchr(us.dli_fname, '/'))) {
		snprintf(why, VGPU_REASON_BYTES, "the plugin's folder is not known");
		return false;
	}
	int folder = (int)(slash - us.dli_fname);
	int n = snprintf(path, VGPU_PATH_BYTES, "%.*s/%s", folder, us.dli_fname, LIBRARY);
	if (n < VGPU_PATH_BYTES)
		return true;
	snprintf(why, VGPU_REASON_BYTES, "the name of the plugin's folder is too long");
	return false;
}

static void await(const char *path)
{
	const struct timespec poll = {.tv_nsec = POLL_MS * 1000000L};

	for (int waited = 0; waited < WAIT_MS && access(path, F_OK) != 0; waited += POLL_MS)
		nanosleep(&poll, NULL);
}

/* All of them or none. */
static bool look_up(void *library, struct vgpu_launch *launch)
{
	const struct {
		const char *name;
		void *into;
	} symbols[] = {
		{"vgpuCheckOption", &launch->check_option},
		{"vgpuEncodeRequest", &launch->encode_request},
		{"vgpuPlan", &launch->plan},
		{"vgpuFinishStep", &launch->finish_step},
		{"vgpuDropPreload", &launch->drop_preload},
		{"vgpuDropBinds", &launch->drop_binds},
	};
	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		void *found = dlsym(library, symbols[i].name);
		if (!found)
			return false;
		memcpy(symbols[i].into, &found, sizeof(found));
	}
	return true;
}

/* Structs go from one to the other, so both are to be of one release and one build of plan.h. */
static bool is_of_our_release(void *library)
{
	int (*is_of)(char *version, size_t request, size_t step, size_t plan);
	void *found = dlsym(library, "vgpuIsOf");

	if (!found)
		return false;
	memcpy(&is_of, &found, sizeof(found));
	return is_of(VGPU_VERSION, sizeof(struct vgpu_request), sizeof(struct vgpu_step),
		     sizeof(struct vgpu_plan));
}

const struct vgpu_launch *vgpu_launch(char why[VGPU_REASON_BYTES])
{
	static struct vgpu_launch launch;
	static bool loaded;
	char path[VGPU_PATH_BYTES];

	if (!vgpu_may_enter_go()) {
		snprintf(why, VGPU_REASON_BYTES, "Slurm forked since it loaded the plugin");
		return NULL;
	}
	if (loaded)
		return &launch;
	if (!beside_us(path, why))
		return NULL;
	await(path);
	/* Nothing of Go's can be unloaded. */
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!library) {
		snprintf(why, VGPU_REASON_BYTES, "load the plugin's second part: %s", dlerror());
		return NULL;
	}
	if (!is_of_our_release(library) || !look_up(library, &launch)) {
		snprintf(why, VGPU_REASON_BYTES, "%s is of another release than the plugin beside it",
			 path);
		return NULL;
	}
	loaded = true;
	return &launch;
}

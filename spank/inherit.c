/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "inherit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "loader.h"

static bool is_carried(const char *entry)
{
	/* Slurm puts these into a job's environment so that its steps get the job's options; the
	 * second one stands in the shell of salloc. */
	static const char *const prefixes[] = {
		"SLURM_SPANK__SLURM_SPANK_OPTION_vgpu_",
		"_SLURM_SPANK_OPTION_vgpu_",
		"SLURM_SPANK_VGPU_",
		"SLURM_VGPU_",
	};
	for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
		if (strncmp(entry, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

static void drop_carried(void)
{
	for (char **entry = environ; entry && *entry;) {
		char name[256];
		size_t length = strcspn(*entry, "=");
		if (!is_carried(*entry) || length >= sizeof(name)) {
			entry++;
			continue;
		}
		memcpy(name, *entry, length);
		name[length] = '\0';
		unsetenv(name); /* moves the next entry here */
	}
}

static void drop_ours(const char *name, void (*drop)(struct vgpu_env *env))
{
	static struct vgpu_env env; /* static: too large for a stack we do not know */
	const char *list = getenv(name);

	if (!list || strlen(list) >= sizeof(env.value))
		return;
	memcpy(env.value, list, strlen(list) + 1);
	drop(&env);
	if (*env.value)
		setenv(name, env.value, 1);
	else
		unsetenv(name);
}

void vgpu_disinherit(void)
{
	char why[VGPU_REASON_BYTES];

	drop_carried();
	if (!getenv("VGPU_STEP_DIR"))
		return;
	unsetenv("VGPU_STEP_DIR");
	unsetenv("CUDA_VISIBLE_DEVICES");
	const struct vgpu_launch *go = vgpu_launch(why);
	if (!go) {
		slurm_error("vgpu: take the outer job's out of the environment: %s", why);
		return;
	}
	/* A library that is preloaded without a step folder refuses to start CUDA. */
	drop_ours("LD_PRELOAD", go->drop_preload);
	/* The folders in these variables are not on every node. */
	drop_ours("APPTAINER_BIND", go->drop_binds);
	drop_ours("SINGULARITY_BIND", go->drop_binds);
}

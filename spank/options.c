/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "loader.h"

static int on_option(int index, const char *text, int remote);

/* Static, because Slurm calls back for one option at a time and asks for no handle. */
static char given[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES];

int vgpu_options_register(spank_t sp)
{
	for (int i = 0; i < VGPU_OPTION_COUNT; i++) {
		struct spank_option option = {
			.name = (char *)vgpu_rows[i].name,
			.arginfo = (char *)vgpu_rows[i].metavar,
			.usage = (char *)vgpu_rows[i].usage,
			.has_arg = 1,
			.val = i,
			.cb = on_option,
		};
		if (spank_option_register(sp, &option) != ESPANK_SUCCESS) {
			slurm_error("vgpu: --%s: Slurm did not take the option", vgpu_rows[i].name);
			return -1;
		}
	}
	return 0;
}

/* Called once for every place that sets the option: environment, #SBATCH, command line. The last
 * one wins. In slurmstepd the text was checked where it was typed, or was put together by hand;
 * either way the plan is the place to judge it, because Slurm ignores an error from here. */
static int on_option(int index, const char *text, int remote)
{
	if (index < 0 || index >= VGPU_OPTION_COUNT)
		return -1;
	if (!text)
		text = "";
	size_t length = strnlen(text, VGPU_OPTION_BYTES);
	if (!remote) {
		char error[VGPU_REASON_BYTES] = "";
		const struct vgpu_launch *go;
		if (length == VGPU_OPTION_BYTES)
			snprintf(error, sizeof(error), "--%s: the value is longer than %d characters",
				 vgpu_rows[index].name, VGPU_OPTION_BYTES - 1);
		else if ((go = vgpu_launch(error)))
			go->check_option(index, (char *)text, error);
		if (*error) {
			slurm_error("vgpu: %s", error);
			return -1;
		}
	}
	/* Too long only if put together by hand: what stands here instead parses as no option. */
	snprintf(given[index], VGPU_OPTION_BYTES, "%s",
		 length == VGPU_OPTION_BYTES ? "(too long)" : text);
	return 0;
}

void vgpu_options_take(char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES])
{
	memcpy(text, given, sizeof(given));
	memset(given, 0, sizeof(given));
}

void vgpu_options_defaults(char text[VGPU_OPTION_COUNT][VGPU_OPTION_BYTES])
{
	for (int i = 0; i < VGPU_OPTION_COUNT; i++) {
		const char *value = getenv(vgpu_rows[i].variable);
		if (!value)
			value = "";
		/* One that is too long is cut, and is no less wrong for it. */
		snprintf(text[i], VGPU_OPTION_BYTES, "%s", value);
	}
}

void vgpu_options_uncarry(spank_t sp)
{
	for (int i = 0; i < VGPU_OPTION_COUNT; i++) {
		char name[128];
		int n = snprintf(name, sizeof(name), "_SLURM_SPANK_OPTION_vgpu_%s", vgpu_rows[i].name);
		for (int at = 0; at < n; at++)
			if (!isalnum((unsigned char)name[at]))
				name[at] = '_';
		unsetenv(name);
		spank_job_control_unsetenv(sp, name);
	}
}

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "arguments.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char default_run_dir[] = "/run/slurm-vgpu"; /* rundir.Default */
static const char run_dir_key[] = "run_dir=";

/* Only %n may follow a percent sign: another letter would name a folder that nobody else uses. */
static bool percents_are_known(const char *path)
{
	for (const char *p = strchr(path, '%'); p; p = strchr(p + 1, '%'))
		if (p[1] != 'n')
			return false;
	return true;
}

int vgpu_arguments_read(int count, char *words[], struct vgpu_arguments *out,
			char why[VGPU_REASON_BYTES])
{
	memcpy(out->run_dir, default_run_dir, sizeof(default_run_dir));
	for (int i = 0; i < count; i++) {
		const char *word = words[i];
		if (strncmp(word, run_dir_key, sizeof(run_dir_key) - 1) != 0) {
			snprintf(why, VGPU_REASON_BYTES,
				 "plugstack.conf: unknown argument %.100s: want run_dir=PATH", word);
			return -1;
		}
		const char *path = word + sizeof(run_dir_key) - 1;
		if (path[0] != '/' || strlen(path) >= sizeof(out->run_dir) ||
		    !percents_are_known(path)) {
			snprintf(why, VGPU_REASON_BYTES,
				 "plugstack.conf: run_dir=%.100s: want an absolute path of at most "
				 "%d characters, in which %%n is the node's name",
				 path, VGPU_PATH_BYTES - 1);
			return -1;
		}
		memcpy(out->run_dir, path, strlen(path) + 1);
	}
	return 0;
}

/* A node's name that can be one word of a path. */
static bool is_node_name(const char *name)
{
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
				      "0123456789._-";
	return name && *name && *name != '.' && name[strspn(name, letters)] == '\0';
}

int vgpu_run_dir(const struct vgpu_arguments *arguments, const char *node,
		 char run_dir[VGPU_PATH_BYTES], char why[VGPU_REASON_BYTES])
{
	size_t used = 0;
	for (const char *p = arguments->run_dir; *p; p++) {
		const char *piece = p;
		size_t length = 1;
		if (*p == '%') {
			if (!is_node_name(node)) {
				snprintf(why, VGPU_REASON_BYTES,
					 "run_dir=%s: SLURMD_NODENAME does not hold the node's name",
					 arguments->run_dir);
				return -1;
			}
			piece = node;
			length = strlen(node);
			p++;
		}
		if (used + length >= VGPU_PATH_BYTES) {
			snprintf(why, VGPU_REASON_BYTES, "run_dir=%s: the path is too long",
				 arguments->run_dir);
			return -1;
		}
		memcpy(run_dir + used, piece, length);
		used += length;
	}
	run_dir[used] = '\0';
	return 0;
}

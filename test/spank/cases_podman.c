/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * What is kept apart for Podman, with real mounts. */
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host.h"

/* Podman's folder, as a login of the user's left it, and in the step. */
static void a_step_has_podman_to_itself(void)
{
	char path[100];
	struct stat st;

	own_machine();
	snprintf(path, sizeof(path), "/run/user/%u/libpod/tmp", host.uid);
	CHECK(mkdir("/run/user", 0755) == 0 && chmod("/run/user", 0755) == 0);
	for (char *slash = path + strlen("/run/user/"); (slash = strchr(slash, '/')) != NULL; slash++) {
		*slash = '\0';
		CHECK(mkdir(path, 0700) == 0 && chown(path, host.uid, host.uid) == 0);
		*slash = '/';
	}
	snprintf(path, sizeof(path), "/run/user/%u/libpod", host.uid);
	snprintf(strchr(path, '\0'), 20, "/pause.pid");
	write_file(path, "1");
	*strrchr(path, '/') = '\0';
	grant(5, "strict", NULL);
	set_job_env("APPTAINER_BIND", "/data");
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(host.log, "");
	SAME(job_env("APPTAINER_BIND"), "/run/slurm-vgpu/self,/etc/ld.so.preload,/data");
	CHECK(stat(path, &st) == 0 && st.st_uid == host.uid && (st.st_mode & 07777) == 0700);
	snprintf(strchr(path, '\0'), 20, "/pause.pid");
	CHECK(!exists(path));
	go_outside();
	CHECK(exists(path));
}

/* What is not his, or a link of his, is not touched. */
static void podmans_folder_may_be_anything(void)
{
	char path[100];

	own_machine();
	snprintf(path, sizeof(path), "/run/user/%u", host.uid);
	CHECK(mkdir("/run/user", 0755) == 0 && chmod("/run/user", 0755) == 0);
	CHECK(mkdir(path, 0700) == 0 && chown(path, host.uid, host.uid) == 0);
	snprintf(path, sizeof(path), "/run/user/%u/libpod", host.uid);
	CHECK(symlink("/etc", path) == 0);
	grant(5, "strict", NULL);
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(host.log, "");
	CHECK(exists("/etc/passwd"));
}

const struct test_case podman_cases[] = {
	{"a step has Podman to itself", a_step_has_podman_to_itself, true},
	{"Podman's folder may be anything", podmans_folder_may_be_anything, true},
	{0},
};

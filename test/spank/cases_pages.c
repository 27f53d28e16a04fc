/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Jobs' pages as steps see them, mounted as the prolog mounts them. */
#define _GNU_SOURCE
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include "host.h"

/* The ledger of job 5, as the node has it. */
static struct stat nodes;

/* As vgpu-prolog leaves it. */
void mount_pages(uint32_t job)
{
	const char *all = in_folder("run/pages");

	if (mount(NULL, all, NULL, MS_PRIVATE, NULL) != 0)
		CHECK(mount(all, all, NULL, MS_BIND, NULL) == 0 &&
		      mount(NULL, all, NULL, MS_PRIVATE, NULL) == 0);
	mkdir(in_folder("run/pages/%u", job), 0755);
	CHECK(mount("tmpfs", in_folder("run/pages/%u", job), "tmpfs", 0, "mode=755") == 0);
	a_ledger(job);
	if (job == 5)
		CHECK(stat(in_folder("run/pages/5/ledger"), &nodes) == 0);
}

static bool is_nodes(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && st.st_dev == nodes.st_dev && st.st_ino == nodes.st_ino;
}

void check_pages(void)
{
	CHECK(is_nodes("/run/slurm-vgpu/self/pages/ledger") && is_nodes("/dev/slurm-vgpu/pages/ledger"));
	CHECK(is_nodes(in_folder("run/pages/5/ledger"))); /* slurmstepd reads there what the step used */
	CHECK(!exists(in_folder("run/pages/6/ledger")));
	CHECK(!strstr(read_text("/proc/thread-self/mountinfo"), "pages/6"));
}

static int sees_its_own_pages_alone(void)
{
	check_pages();
	return 42;
}

/* Whichever job's came first, and whatever comes later. */
static void other_jobs_pages_are_not_there(void)
{
	own_machine();
	grant(5, "strict", NULL);
	mount_pages(6);
	mount_pages(5);
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(host.log, "");
	CHECK(run_in_child(sees_its_own_pages_alone) == 42);
	go_outside();
	CHECK(exists(in_folder("run/pages/6/ledger")) && exists(in_folder("run/pages/5/ledger")));
	CHECK(umount2(in_folder("run/pages/6"), 0) == 0); /* nobody else has it mounted */
	mount_pages(6);
	go_back();
	CHECK(run_in_child(sees_its_own_pages_alone) == 42);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	CHECK(exists(in_folder("run/jobs/5/usage.json")));
	SAME(host.log, "");
}

const struct test_case pages_cases[] = {
	{"other jobs' pages are not there", other_jobs_pages_are_not_there, true},
	{0},
};

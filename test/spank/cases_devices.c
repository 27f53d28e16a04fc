/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Steps on a node whose device files are closed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "host.h"

#define STEP_DEVICES "dev/slurm-vgpu-gpus"

/* The node as `vgpuctl devices close` leaves it: minors 0 and 2 are the job's. */
static void own_machine_with_closed_devices(void)
{
	static char more[512];

	own_machine();
	CHECK(mkdir(in_folder(STEP_DEVICES), 0700) == 0);
	for (int minor = 0; minor < 4; minor++) {
		const char *own = in_folder(STEP_DEVICES "/nvidia%d", minor);
		CHECK(mknod(own, S_IFCHR | 0666, makedev(1, 3)) == 0 && chmod(own, 0666) == 0);
		CHECK(chmod(in_folder("dev/nvidia%d", minor), 0600) == 0);
	}
	snprintf(more, sizeof(more), "\"step_devices\": \"%s\",", in_folder(STEP_DEVICES));
	grant_more = more;
	grant(5, "strict", NULL);
}

static void check_own_devices(void)
{
	for (int minor = 0; minor < 4; minor++)
		CHECK(open_error(in_folder("dev/nvidia%d", minor), O_RDWR) == (minor % 2 ? EACCES : 0));
	CHECK(mode_of(in_folder("dev/nvidia0")) == 0666 && mode_of(in_folder("dev/nvidia1")) == 0600);
}

static int looks_at_devices(void)
{
	char command[2048];

	CHECK(loaded.task_init_privileged(NULL, 0, NULL) == 0);
	check_own_devices();
	CHECK(setgroups(0, NULL) == 0 && setgid(host.uid) == 0 && setuid(host.uid) == 0);
	check_own_devices();
	CHECK(open_error(in_folder(STEP_DEVICES "/nvidia1"), O_RDWR) == EACCES);
	/* What is below cannot be uncovered, and is closed. */
	snprintf(command, sizeof(command),
		 "unshare -Urm sh -c 'umount -l %1$s/nvidia1 2>/dev/null; umount -l %1$s/nvidia0 2>/dev/null;"
		 " (: <%1$s/nvidia0) && ! (: <%1$s/nvidia1) 2>/dev/null && ! ls %1$s/slurm-vgpu-gpus 2>/dev/null'",
		 in_folder("dev"));
	CHECK(system(command) == 0);
	return 42;
}

static void a_step_has_device_files_of_its_own(void)
{
	own_machine_with_closed_devices();
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(host.log, "");
	check_own_devices(); /* for the user's files and his task epilog */
	CHECK(run_in_child(looks_at_devices) == 42);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	go_outside();
	CHECK(mode_of(in_folder("dev/nvidia0")) == 0600);
	CHECK(!strstr(read_text("/proc/thread-self/mountinfo"), "/nvidia"));
}

static void an_own_device_must_be_there(void)
{
	own_machine_with_closed_devices();
	CHECK(unlink(in_folder(STEP_DEVICES "/nvidia2")) == 0);
	check_step_fails(STEP_DEVICES "/nvidia2: No such file");
}

static void an_own_device_must_be_the_nodes(void)
{
	own_machine_with_closed_devices();
	CHECK(unlink(in_folder(STEP_DEVICES "/nvidia2")) == 0);
	CHECK(mknod(in_folder(STEP_DEVICES "/nvidia2"), S_IFCHR | 0666, makedev(1, 5)) == 0);
	check_step_fails(STEP_DEVICES "/nvidia2 is of another device than");
}

const struct test_case device_cases[] = {
	{"a step has device files of its own", a_step_has_device_files_of_its_own, true},
	{"an own device must be there", an_own_device_must_be_there, true},
	{"an own device must be the node's", an_own_device_must_be_the_nodes, true},
	{0},
};

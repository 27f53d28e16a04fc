/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Steps of a job that has a mount namespace of its own, as job_container/tmpfs makes and joins it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "host.h"

/* In a child: a namespace that is cut off from the node's, with a file of its own in /run. */
static void be_the_container(int ready, int end)
{
	char byte;
	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount("tmpfs", "/mnt", "tmpfs", 0, "mode=755") != 0)
		_exit(1);
	write_file("/mnt/of-the-container", "");
	CHECK(write(ready, "r", 1) == 1 && read(end, &byte, 1) == 0);
	_exit(0);
}

/* Keeps the namespace as a file. Linux 6.18 numbers namespaces by CPU and refuses that where the new
 * number is below that of the namespace in which the file is, so every CPU is tried. */
static bool keep_container(const char *path)
{
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
		int ready[2], end[2];
		char byte, name[64];
		cpu_set_t one;

		CPU_ZERO(&one);
		CPU_SET(cpu, &one);
		if (sched_setaffinity(0, sizeof(one), &one) != 0)
			continue;
		CHECK(pipe2(ready, O_CLOEXEC) == 0 && pipe2(end, O_CLOEXEC) == 0);
		pid_t child = fork();
		if (child == 0) {
			close(end[1]);
			be_the_container(ready[1], end[0]);
		}
		CHECK(child > 0 && read(ready[0], &byte, 1) == 1);
		snprintf(name, sizeof(name), "/proc/%d/ns/mnt", (int)child);
		bool kept = mount(name, path, NULL, MS_BIND, NULL) == 0;
		close(end[1]);
		CHECK(waitpid(child, NULL, 0) == child);
		if (kept)
			return true;
		CHECK(errno == EINVAL);
	}
	return false;
}

static void a_container(const char *path)
{
	const char *containers = in_folder("containers");

	CHECK(mkdir(containers, 0755) == 0);
	CHECK(mount(containers, containers, NULL, MS_BIND, NULL) == 0);
	CHECK(mount(NULL, containers, NULL, MS_PRIVATE, NULL) == 0);
	CHECK(mkdir(in_folder("containers/n1"), 0755) == 0 && mkdir(in_folder("containers/n1/5"), 0755) == 0);
	write_file(path, "");
	if (!keep_container(path)) {
		fprintf(stderr, "    no namespace can be kept as a file here\n");
		_exit(0);
	}
}

/* As container_p_join does. */
static void join(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && setns(fd, CLONE_NEWNS) == 0);
	close(fd);
	CHECK(exists("/mnt/of-the-container"));
}

static const char *container;

static int task(void)
{
	join(container);
	CHECK(loaded.task_init_privileged(NULL, 0, NULL) == 0);
	check_view();
	return 42;
}

static int script(void) /* a task epilog: no hook is called for it */
{
	join(container);
	check_view();
	return 42;
}

static int sees_its_own_pages_alone(void)
{
	join(container);
	check_pages();
	return 42;
}

static void a_job_in_a_container(void)
{
	own_machine();
	grant(5, "strict", NULL);
	mount_pages(6);
	container = strdup(in_folder("containers/n1/5/.ns"));
	a_container(container);
	mount_pages(5); /* by a prolog that was slower than Slurm */
	loaded = start_step(5, 0);
}

static void check_isolated(void)
{
	int pipes = descriptors("pipe:"), namespaces = descriptors("mnt:[");
	sigset_t before, after;

	CHECK(sigprocmask(SIG_SETMASK, NULL, &before) == 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	CHECK(sigprocmask(SIG_SETMASK, NULL, &after) == 0);
	for (int s = 1; s < NSIG; s++)
		CHECK(sigismember(&after, s) == sigismember(&before, s));
	/* The twin is held on to, and nothing else that was opened for it. */
	CHECK(descriptors("pipe:") == pipes && descriptors("mnt:[") == namespaces + 1);
	CHECK(descriptors("mountinfo") + descriptors("/nvidia") + descriptors("/self") +
		      descriptors("ld.so.preload") + descriptors("/container") ==
	      0);
	SAME(host.log, "");
	check_view();
	CHECK(run_in_child(task) == 42);
	CHECK(run_in_child(script) == 42);
}

static void a_container_is_isolated_as_well(void)
{
	a_job_in_a_container();
	check_isolated();

	CHECK(run_in_child(sees_its_own_pages_alone) == 42);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	CHECK(!exists(in_folder("run/jobs/5/steps/0")));
}

/* Before its first pipe Go has opened what it keeps open, which would take the place. */
static bool ends_input;
int pipe2(int ends[2], int flags)
{
	if (ends_input)
		CHECK(close(STDIN_FILENO) == 0);
	ends_input = false;
	return (int)syscall(SYS_pipe2, ends, flags);
}

/* The lowest number of a descriptor is as good as any. */
static void a_container_is_isolated_without_standard_input(void)
{
	a_job_in_a_container();
	ends_input = true;
	check_isolated();
	CHECK(!ends_input);
}

static int fails(void)
{
	join(container);
	CHECK(loaded.task_init_privileged(NULL, 0, NULL) == -1);
	LOGGED("vgpu: isolate the step: ");
	LOGGED("dev/nvidia1 is not a character device");
	return 7;
}

static void a_container_that_cannot_be_isolated_fails_the_step_with_the_reason(void)
{
	a_job_in_a_container();
	CHECK(unlink(in_folder("dev/nvidia1")) == 0);
	write_file(in_folder("dev/nvidia1"), "");
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0); /* -1 would drain the node */
	CHECK(run_in_child(fails) == 7);
}

const struct test_case container_cases[] = {
	{"a container is isolated as well", a_container_is_isolated_as_well, true},
	{"a container is isolated without standard input", a_container_is_isolated_without_standard_input, true},
	{"a container that cannot be isolated fails the step with the reason",
	 a_container_that_cannot_be_isolated_fails_the_step_with_the_reason, true},
	{0},
};

/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * Strict isolation with real mounts. Every case first moves into a mount namespace of its own with
 * its own /run and a copy of /etc, so that nothing of this machine changes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "host.h"

static void run_command(const char *command)
{
	int status = system(command);
	if (status != 0)
		fprintf(stderr, "    %s: status %d\n", command, status);
	CHECK(status == 0);
}

static int outside = -1; /* the mount namespace in which slurmd would be */
static int inside = -1;	 /* the one that the process had before it went there */

void go_outside(void)
{
	inside = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
	CHECK(inside >= 0 && setns(outside, CLONE_NEWNS) == 0);
}

void go_back(void)
{
	CHECK(setns(inside, CLONE_NEWNS) == 0);
}

void own_machine(void)
{
	static char library[512];
	char command[2048];

	CHECK(unshare(CLONE_NEWNS) == 0);
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
	CHECK(mkdir(in_folder("etc"), 0755) == 0 && mkdir(in_folder("dev"), 0755) == 0);
	CHECK(mount("tmpfs", in_folder("etc"), "tmpfs", 0, "mode=755") == 0);
	CHECK(mount("tmpfs", in_folder("dev"), "tmpfs", 0, "mode=755") == 0);
	snprintf(command, sizeof(command),
		 "cp -a /etc/. %s/etc && rm -f %s/etc/ld.so.preload && install -m 755 %s %s/lib.so", folder,
		 folder, library_path, folder);
	run_command(command);
	snprintf(library, sizeof(library), "%s/lib.so", folder);
	library_path = library;
	CHECK(mount(in_folder("etc"), "/etc", NULL, MS_BIND, NULL) == 0);
	CHECK(mount("tmpfs", "/run", "tmpfs", 0, "mode=755") == 0);
	/* where Podman's folders may be made, and the test itself or the sources may be */
	if (strncmp(folder, "/tmp/", 5) != 0 && strncmp(plugin_path, "/tmp/", 5) != 0)
		CHECK(mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777") == 0);
	CHECK(mkdir(in_folder("devices"), 0755) == 0);
	CHECK(mount("tmpfs", in_folder("devices"), "tmpfs", 0, "mode=755") == 0);
	snprintf(command, sizeof(command), "cp -a /dev/null /dev/zero /dev/urandom /dev/fd %s/devices",
		 folder);
	run_command(command);
	CHECK(mkdir(in_folder("devices/shm"), 0755) == 0);
	CHECK(mount("/dev/shm", in_folder("devices/shm"), NULL, MS_BIND | MS_REC, NULL) == 0);
	CHECK(mount(in_folder("devices"), "/dev", NULL, MS_BIND | MS_REC, NULL) == 0);
	/* As systemd has it; what a task mounts must not come back through this. */
	CHECK(mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL) == 0);
	outside = open("/proc/thread-self/ns/mnt", O_RDONLY | O_CLOEXEC);
	CHECK(outside >= 0);
	CHECK(mkdir(in_folder("driver"), 0755) == 0 && chmod(in_folder("driver"), 0755) == 0);
	write_file(in_folder("driver/libcuda.so.580"), "the driver");
	write_file(in_folder("driver/guard.so"), "the guard");
	CHECK(chmod(in_folder("driver/libcuda.so.580"), 0644) == 0 &&
	      chmod(in_folder("driver/guard.so"), 0644) == 0);
	for (int minor = 0; minor < 4; minor++) {
		const char *node = in_folder("dev/nvidia%d", minor);
		CHECK(mknod(node, S_IFCHR | 0666, makedev(1, 3)) == 0 && chmod(node, 0666) == 0);
	}
}

static void own_machine_and_step(void)
{
	own_machine();
	grant(5, "strict", NULL);
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(host.log, "");
}

/* As with job_container/tmpfs: the tasks are not where slurmstepd is. */
static void own_machine_and_step_in_a_container(void)
{
	own_machine_and_step();
	go_outside();
}

int open_error(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno;
	close(fd);
	return 0;
}

mode_t mode_of(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

#define PRELOAD "/run/slurm-vgpu/self/libslurm-vgpu.so\n"

/* All that a process needs is in it, wherever it is found. */
static void check_folder(const char *name)
{
	static const char *const has[] = {"limits", "ledger", "pages/ledger"};
	char path[600];
	struct stat st;

	for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++) {
		snprintf(path, sizeof(path), "%s/%s", name, has[i]);
		CHECK(exists(path));
	}
	snprintf(path, sizeof(path), "%s/libcuda-slurm-vgpu.so", name);
	SAME(read_text(path), "the driver");
	snprintf(path, sizeof(path), "%s/libslurm-vgpu.so", name);
	CHECK(stat(path, &st) == 0 && st.st_size > 0);
}

void check_view(void)
{
	struct stat st;

	SAME(read_text("/etc/ld.so.preload"), PRELOAD);
	check_folder("/run/slurm-vgpu/self");
	check_folder("/dev/slurm-vgpu");
	CHECK(!strstr(read_text("/proc/self/mountinfo"), " shared:"));
	SAME(read_text(in_folder("driver/libcuda.so.580")), "the guard");
	/* minors 0 and 2 are the job's, 1 and 3 are not */
	CHECK(open_error(in_folder("dev/nvidia0"), O_RDWR) == 0);
	CHECK(open_error(in_folder("dev/nvidia2"), O_RDWR) == 0);
	CHECK(open_error(in_folder("dev/nvidia1"), O_RDWR) == EACCES);
	CHECK(open_error(in_folder("dev/nvidia3"), O_RDONLY) == EACCES);
	CHECK(stat(in_folder("dev/nvidia3"), &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
}

static int look_around(void)
{
	CHECK(loaded.task_init_privileged(NULL, 0, NULL) == 0);
	check_view();
	CHECK(setgroups(0, NULL) == 0 && setgid(host.uid) == 0 && setuid(host.uid) == 0);
	check_view();
	CHECK(open_error("/run/slurm-vgpu/self/limits", O_RDONLY) == 0);
	CHECK(open_error("/run/slurm-vgpu/self/limits", O_RDWR) == EACCES);
	CHECK(open_error("/run/slurm-vgpu/self/new", O_RDWR | O_CREAT) == EACCES);
	CHECK(unlink("/run/slurm-vgpu/self/ledger") == -1 && errno == EACCES);
	CHECK(open_error("/run/slurm-vgpu/self/ledger", O_RDWR) == 0);
	CHECK(open_error("/etc/ld.so.preload", O_RDWR) != 0);
	CHECK(open_error("/dev/slurm-vgpu/limits", O_RDWR) == EACCES);
	CHECK(open_error("/dev/slurm-vgpu/pages/ledger", O_RDWR) == 0);
	CHECK(umount2("/etc/ld.so.preload", MNT_DETACH) == -1 && errno == EPERM);
	/* In a user namespace of one's own one may mount, but not uncover what was there before. */
	CHECK(system("unshare -Urm umount -l /etc/ld.so.preload 2>/dev/null") != 0);
	char *const nothing[] = {NULL};
	execle("/bin/sh", "sh", "-c", "test \"$PRELOADED\" = yes && exit 42", NULL, nothing);
	return 1;
}

static char *namespace_now(void)
{
	static char names[4][64];
	static int next;
	char *name = names[next++ % 4];
	ssize_t n = readlink("/proc/thread-self/ns/mnt", name, 63);
	CHECK(n > 0);
	name[n] = '\0';
	return name;
}

static void check_outside(const char *mounts)
{
	SAME(read_text("/proc/thread-self/mountinfo"), mounts);
	SAME(read_text("/etc/ld.so.preload"), "");
	CHECK(mode_of("/etc/ld.so.preload") == 0644);
	CHECK(mode_of("/run/slurm-vgpu/self") == 0755);
	CHECK(mode_of("/dev/slurm-vgpu") == 0755);
	CHECK(!exists("/run/slurm-vgpu/self/limits") && !exists("/dev/slurm-vgpu/limits"));
	CHECK(open_error(in_folder("dev/nvidia1"), O_RDWR) == 0);
}

static const char *namespace_of_the_step;
static int shares_the_steps_namespace(void)
{
	CHECK(loaded.task_init_privileged(NULL, 0, NULL) == 0);
	SAME(namespace_now(), namespace_of_the_step);
	CHECK(strstr(read_text("/proc/self/mountinfo"), " master:")); /* what the node mounts later arrives */
	return look_around();
}

/* slurmstepd opens the user's files and runs his task epilog, so it sees what the tasks see. */
static void a_step_sees_its_own_machine(void)
{
	own_machine();
	char *mounts = read_text("/proc/thread-self/mountinfo");
	grant(5, "strict", NULL);
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(host.log, "");
	check_view();
	namespace_of_the_step = namespace_now();
	CHECK(run_in_child(shares_the_steps_namespace) == 42);
	CHECK(run_in_child(shares_the_steps_namespace) == 42); /* its second task */
	CHECK(job_env("LD_PRELOAD") == NULL);
	CHECK(descriptors("mountinfo") + descriptors("/nvidia") + descriptors("/self") +
		      descriptors("ld.so.preload") ==
	      0);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	CHECK(!exists(in_folder("run/jobs/5/steps/0")));
	CHECK(exists(in_folder("run/jobs/5/usage.json")));
	SAME(host.log, "");
	go_outside();
	check_outside(mounts);
}

static void a_task_in_a_container_sees_its_own_machine(void)
{
	own_machine_and_step_in_a_container();
	char *mounts = read_text("/proc/thread-self/mountinfo");
	CHECK(run_in_child(look_around) == 42);
	CHECK(run_in_child(look_around) == 42);
	check_outside(mounts);
	CHECK(loaded.exit(NULL, 0, NULL) == 0);
	CHECK(!exists(in_folder("run/jobs/5/steps/0")));
}

static void the_systems_own_preloads_stay(void)
{
	own_machine();
	write_file("/etc/ld.so.preload", "/opt/site.so\n");
	grant(5, "strict", NULL);
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(read_text(in_folder("run/jobs/5/steps/0/ld.so.preload")), PRELOAD "/opt/site.so\n");
}

/* The task must fail, say why, and its mounts must not reach the node. */
static const char *expected_beginning, *expected_reason;
static int fails(void)
{
	int rc = loaded.task_init_privileged(NULL, 0, NULL);
	LOGGED(expected_beginning);
	LOGGED(expected_reason);
	CHECK(strchr(host.log, '\n') == strrchr(host.log, '\n'));
	return rc == -1 ? 7 : 1;
}

static int succeeds(void)
{
	return loaded.task_init_privileged(NULL, 0, NULL) == 0 ? 7 : 1;
}

static void check_fails(const char *reason)
{
	char *before = read_text("/proc/thread-self/mountinfo");
	expected_reason = reason;
	expected_beginning = "vgpu: isolate the task: ";
	CHECK(run_in_child(fails) == 7);
	SAME(read_text("/proc/thread-self/mountinfo"), before);
	SAME(host.log, "");
}

/* The same where the step itself cannot be isolated, which is most often the case. */
void check_step_fails(const char *reason)
{
	char *before = read_text("/proc/thread-self/mountinfo");
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0); /* -1 would drain the node */
	go_outside();
	expected_reason = reason;
	expected_beginning = "vgpu: isolate the step: ";
	CHECK(run_in_child(fails) == 7);
	SAME(read_text("/proc/thread-self/mountinfo"), before);
	SAME(host.log, "");
}

static void a_mask_must_cover_a_device(void)
{
	own_machine_and_step_in_a_container();
	CHECK(unlink(in_folder("dev/nvidia1")) == 0);
	CHECK(run_in_child(succeeds) == 7); /* a GPU that is gone is none to hide */
	write_file(in_folder("dev/nvidia1"), "");
	check_fails("dev/nvidia1 is not a character device");
	CHECK(unlink(in_folder("dev/nvidia1")) == 0);
	CHECK(symlink(in_folder("dev/nvidia0"), in_folder("dev/nvidia1")) == 0);
	check_fails("dev/nvidia1 is a symbolic link");
}

static void a_step_that_cannot_be_isolated_fails(void)
{
	own_machine();
	grant(5, "strict", NULL);
	CHECK(unlink(in_folder("dev/nvidia1")) == 0);
	write_file(in_folder("dev/nvidia1"), "");
	check_step_fails("dev/nvidia1 is not a character device");
}

static void only_roots_files_are_mounted(void)
{
	own_machine_and_step_in_a_container();
	const char *step = in_folder("run/jobs/5/steps/0"),
		   *preload = in_folder("run/jobs/5/steps/0/ld.so.preload");
	CHECK(chmod(step, 0777) == 0);
	check_fails("steps/0 can be written by others than root");
	CHECK(chmod(step, 0755) == 0 && chown(step, host.uid, host.uid) == 0);
	check_fails("steps/0 is not owned by root");
	CHECK(chown(step, 0, 0) == 0 && unlink(preload) == 0);
	check_fails("ld.so.preload: No such file or directory");
	CHECK(symlink("/etc/passwd", preload) == 0);
	check_fails("ld.so.preload is a symbolic link");
	/* The linker of every program would wait for whoever writes into this one. */
	CHECK(unlink(preload) == 0 && mkfifo(preload, 0644) == 0);
	check_fails("ld.so.preload is not a regular file");
}

static void mount_points_are_no_links(void)
{
	own_machine_and_step_in_a_container();
	CHECK(unlink("/etc/ld.so.preload") == 0 && symlink("/etc/passwd", "/etc/ld.so.preload") == 0);
	check_fails("/etc/ld.so.preload is a symbolic link");
	CHECK(unlink("/etc/ld.so.preload") == 0);
	CHECK(rmdir("/run/slurm-vgpu/self") == 0 && symlink("/etc", "/run/slurm-vgpu/self") == 0);
	check_fails("/run/slurm-vgpu/self is a symbolic link");
}

/* It is for containers; without one everything else is as always. */
static void a_step_does_without_a_place_in_dev(void)
{
	own_machine();
	CHECK(symlink("/tmp", "/dev/slurm-vgpu") == 0);
	grant(5, "strict", NULL);
	loaded = start_step(5, 0);
	CHECK(loaded.init_post_opt(NULL, 0, NULL) == 0);
	SAME(host.log, "");
	SAME(read_text("/etc/ld.so.preload"), PRELOAD);
	check_folder("/run/slurm-vgpu/self");
	CHECK(!exists("/tmp/limits"));
}

const struct test_case isolation_cases[] = {
	{"a step sees its own machine", a_step_sees_its_own_machine, true},
	{"a task in a container sees its own machine", a_task_in_a_container_sees_its_own_machine, true},
	{"a step that cannot be isolated fails", a_step_that_cannot_be_isolated_fails, true},
	{"the system's own preloads stay", the_systems_own_preloads_stay, true},
	{"a mask must cover a device", a_mask_must_cover_a_device, true},
	{"only root's files are mounted", only_roots_files_are_mounted, true},
	{"a step does without a place in /dev", a_step_does_without_a_place_in_dev, true},
	{"mount points are no links", mount_points_are_no_links, true},
	{0},
};

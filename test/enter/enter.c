/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0
 *
 * A SPANK plugin that runs tasks in a container as Pyxis with enroot does: in task_init, as the user, a
 * child makes user and mount namespaces of its own with the root file system in them, and the task enters
 * them. For tests only. By variables of the task:
 *   ENTER_ROOT      the root file system
 *   ENTER_BINDS     SOURCE:TARGET,…
 *   ENTER_REMAP     the user is root inside
 *   ENTER_READONLY  the root file system is
 *   ENTER_DEV       the container has a /dev of its own: enroot's with ENROOT_RESTRICT_DEV; "ipc": with --ipc
 *   ENTER_JOIN      a process in whose container the task runs instead */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <slurm/spank.h>

SPANK_PLUGIN(enter, 1)

struct container {
	char root[512], binds[4096], remap[8], readonly[8], dev[8], join[32];
};

static bool fail(const char *what)
{
	slurm_error("enter: %s: %s", what, strerror(errno));
	return false;
}

static bool write_map(const char *path, unsigned inside, unsigned outside)
{
	char line[64];
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	int length = snprintf(line, sizeof(line), "%u %u 1", inside, outside);
	bool written = fd >= 0 && write(fd, line, (size_t)length) == length;

	if (fd >= 0)
		close(fd);
	return written || fail(path);
}

static bool deny_groups(void)
{
	int fd = open("/proc/self/setgroups", O_WRONLY | O_CLOEXEC);
	bool written = fd >= 0 && write(fd, "deny", 4) == 4;

	if (fd >= 0)
		close(fd);
	return written || fail("/proc/self/setgroups");
}

static bool make_namespaces(const struct container *c)
{
	unsigned uid = getuid(), gid = getgid();
	bool remap = *c->remap != '\0';

	if (unshare(CLONE_NEWUSER) != 0)
		return fail("make a user namespace");
	if (!write_map("/proc/self/uid_map", remap ? 0 : uid, uid) || !deny_groups() ||
	    !write_map("/proc/self/gid_map", remap ? 0 : gid, gid))
		return false;
	return unshare(CLONE_NEWNS | (strcmp(c->dev, "ipc") == 0 ? CLONE_NEWIPC : 0)) == 0 ||
	       fail("make a mount namespace");
}

static bool bind(const struct container *c, const char *source, const char *target)
{
	char to[1100];

	snprintf(to, sizeof(to), "%s%s", c->root, target);
	return mount(source, to, NULL, MS_BIND | MS_REC, NULL) == 0 || fail(to);
}

/* Without what is mounted in the host's, but for what is put back. */
static bool make_dev(const struct container *c)
{
	static const char *const kept[] = {"/dev/null", "/dev/zero", "/dev/urandom"};
	char path[1100];

	if (!*c->dev)
		return bind(c, "/dev", "/dev");
	snprintf(path, sizeof(path), "%s/dev", c->root);
	if (mount("tmpfs", path, "tmpfs", MS_NOSUID, "mode=755") != 0)
		return fail(path);
	for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
		snprintf(path, sizeof(path), "%s%s", c->root, kept[i]);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			return fail(path);
		close(fd);
		if (!bind(c, kept[i], kept[i]))
			return false;
	}
	return true;
}

static bool mount_all(struct container *c)
{
	char *rest;

	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
	    mount(c->root, c->root, NULL, MS_BIND, NULL) != 0 || chdir(c->root) != 0)
		return fail(c->root);
	if (!make_dev(c) || !bind(c, "/proc", "/proc") || !bind(c, "/sys", "/sys"))
		return false;
	for (char *one = strtok_r(c->binds, ",", &rest); one; one = strtok_r(NULL, ",", &rest)) {
		char *colon = strchr(one, ':');
		if (!colon)
			return fail(one);
		*colon = '\0';
		if (!bind(c, one, colon + 1))
			return false;
	}
	if (*c->readonly && mount(NULL, c->root, NULL,
				  MS_BIND | MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL) != 0)
		return fail("make it read-only");
	if (chdir(c->root) != 0 || syscall(SYS_pivot_root, ".", ".") != 0)
		return fail("change the root");
	return umount2(".", MNT_DETACH) == 0 || fail("let go of the old root");
}

static bool enter(pid_t pid)
{
	char path[64];
	int user, mnt;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	user = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", (int)pid);
	mnt = open(path, O_RDONLY | O_CLOEXEC);
	bool entered = user >= 0 && mnt >= 0 && setns(user, CLONE_NEWUSER) == 0 &&
		       setns(mnt, CLONE_NEWNS) == 0;
	if (!entered)
		fail("enter the container");
	close(user);
	close(mnt);
	return entered && (chdir("/") == 0 || fail("/"));
}

/* The child stops when it is done, and is not needed after that. */
static bool make_and_enter(struct container *c)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_DUMPABLE, 1); /* as a program of the user's: its /proc is his */
		if (make_namespaces(c) && mount_all(c))
			raise(SIGSTOP);
		_exit(1);
	}
	bool made = child > 0 && waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status) &&
		    enter(child);
	if (child > 0 && WIFSTOPPED(status)) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	return made;
}

static void get(spank_t sp, const char *name, char *value, int size)
{
	if (spank_getenv(sp, name, value, size) != ESPANK_SUCCESS)
		*value = '\0';
}

int slurm_spank_task_init(spank_t sp, int ac, char *av[])
{
	static struct container c;

	(void)ac, (void)av;
	get(sp, "ENTER_ROOT", c.root, sizeof(c.root));
	get(sp, "ENTER_BINDS", c.binds, sizeof(c.binds));
	get(sp, "ENTER_REMAP", c.remap, sizeof(c.remap));
	get(sp, "ENTER_READONLY", c.readonly, sizeof(c.readonly));
	get(sp, "ENTER_DEV", c.dev, sizeof(c.dev));
	get(sp, "ENTER_JOIN", c.join, sizeof(c.join));
	if (*c.join)
		return enter((pid_t)atoi(c.join)) ? 0 : -1;
	return *c.root == '\0' || make_and_enter(&c) ? 0 : -1;
}

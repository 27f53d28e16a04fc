/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "container.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
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

#include "isolate.h"

/* The twin's word in the pipe when it has isolated itself. */
#define MADE "made"

static int fail(char *why, const char *what)
{
	snprintf(why, VGPU_REASON_BYTES, "%s: %s", what, strerror(errno));
	return -1;
}

/* mountinfo writes blanks and line feeds as \ooo. */
static void unescape(char *text)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		unsigned int code;
		if (*from == '\\' && sscanf(from, "\\%3o", &code) == 1) {
			*to++ = (char)code;
			from += 3;
		} else {
			*to++ = *from;
		}
	}
	*to = '\0';
}

/* Looks for a folder named like the job in the path of a namespace's file. */
static enum vgpu_container kind_of(const char *path, uint32_t job)
{
	char folder[16];
	size_t length = (size_t)snprintf(folder, sizeof(folder), "/%u/", job);
	const char *file = strstr(path, folder);

	if (!file)
		return VGPU_CONTAINER_NONE;
	return strchr(file + length, '/') ? VGPU_CONTAINER_OTHER : VGPU_CONTAINER_FILE;
}

enum vgpu_container vgpu_container_find(uint32_t job, char path[VGPU_PATH_BYTES])
{
	FILE *mounts = fopen("/proc/thread-self/mountinfo", "re");
	enum vgpu_container found = VGPU_CONTAINER_NONE;
	char *line = NULL;
	size_t size = 0;

	if (!mounts)
		return found;
	while (found == VGPU_CONTAINER_NONE && getline(&line, &size, mounts) > 0) {
		char root[64];
		/* id, parent, device, what is mounted, where: proc_pid_mountinfo(5) */
		if (sscanf(line, "%*s %*s %*s %63s %511s", root, path) != 2 ||
		    strncmp(root, "mnt:[", 5) != 0)
			continue;
		unescape(path);
		found = kind_of(path, job);
	}
	free(line);
	fclose(mounts);
	return found;
}

/* The call is in no header of glibc 2.28, and in no kernel before 5.2. */
#ifndef SYS_open_tree
#define SYS_open_tree 428
#endif
#ifndef OPEN_TREE_CLONE
#define OPEN_TREE_CLONE 1
#endif
#ifndef AT_RECURSIVE
#define AT_RECURSIVE 0x8000
#endif

/* Holds on to the job's pages, as the node has them mounted: Slurm cuts the job's namespace off, and may
 * have made it before the prolog mounted them. */
static int take_pages_dir(const struct vgpu_plan *plan)
{
	return (int)syscall(SYS_open_tree, AT_FDCWD, plan->pages_dir,
			    OPEN_TREE_CLONE | O_CLOEXEC);
}

/* In a child that no signal interrupts: goes into the container, isolates itself there, says so, and waits to
 * be looked at. */
static void be_the_twin(const char *path, const struct vgpu_plan *plan, int out, int in)
{
	char why[VGPU_REASON_BYTES] = MADE;
	int container = open(path, O_RDONLY | O_CLOEXEC), tree = take_pages_dir(plan);

	if (container < 0 || setns(container, CLONE_NEWNS) != 0)
		fail(why, "enter the job's container");
	else
		vgpu_isolate(plan, tree, why); /* which leaves why as it is, unless it fails */
	if (write(out, why, strlen(why)) > 0)
		poll(&(struct pollfd){.fd = in}, 1, -1); /* until the other end is closed */
	_exit(0);
}

static int open_twin(pid_t child, int from, char *why)
{
	char name[64], said[VGPU_REASON_BYTES];
	ssize_t n;

	do
		n = read(from, said, sizeof(said) - 1);
	while (n < 0 && errno == EINTR);
	said[n > 0 ? n : 0] = '\0';
	if (strcmp(said, MADE) != 0) {
		snprintf(why, VGPU_REASON_BYTES, "%s", *said ? said : "the job's container has no twin");
		return -1;
	}
	snprintf(name, sizeof(name), "/proc/%d/ns/mnt", (int)child);
	int twin = open(name, O_RDONLY | O_CLOEXEC);
	return twin >= 0 ? twin : fail(why, "open the twin of the job's container");
}

int vgpu_container_twin(const char *path, const struct vgpu_plan *plan, char why[VGPU_REASON_BYTES])
{
	int up[2], down[2], twin = -1;
	sigset_t all, before;

	if (pipe2(up, O_CLOEXEC) != 0)
		return fail(why, "make a pipe");
	if (pipe2(down, O_CLOEXEC) != 0) {
		fail(why, "make a pipe");
		close(up[0]);
		close(up[1]);
		return -1;
	}
	/* Handlers are the host's, and mean its process. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid_t child = fork();
	if (child == 0) {
		close(up[0]);
		close(down[1]);
		be_the_twin(path, plan, up[1], down[0]);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	close(up[1]);
	if (child > 0)
		twin = open_twin(child, up[0], why);
	else
		fail(why, "fork");
	close(down[0]);
	close(down[1]); /* the child ends */
	while (child > 0 && waitpid(child, NULL, 0) < 0 && errno == EINTR)
		;
	close(up[0]);
	return twin;
}

/* A link can be mounted when it is named by a descriptor, and is followed where it is mounted. */
static int mount_link(int link, const char *path, char *why)
{
	char from[32], to[32];
	int target = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC), rc = 0;

	if (target < 0)
		return fail(why, path);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", link);
	snprintf(to, sizeof(to), "/proc/self/fd/%d", target);
	if (mount(from, to, NULL, MS_BIND, NULL) != 0)
		rc = fail(why, "put the twin in the container's place");
	close(target);
	return rc;
}

int vgpu_container_replace(const char *path, int twin, const char *folder, char why[VGPU_REASON_BYTES])
{
	char name[VGPU_PATH_BYTES + 16], to[64];
	int rc = -1;

	snprintf(name, sizeof(name), "%s/container", folder);
	snprintf(to, sizeof(to), "/proc/%d/fd/%d", (int)getpid(), twin);
	if (symlink(to, name) != 0)
		return fail(why, name);
	int link = open(name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (link < 0)
		fail(why, name);
	else
		rc = mount_link(link, path, why);
	if (link >= 0)
		close(link);
	unlink(name);
	return rc;
}

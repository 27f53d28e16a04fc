/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "isolate.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "moved.h"
#include "podman.h"

/* interposer/api/layout.h has the same folders (VGPU_SELF_DIR, VGPU_PAGES). */
static const char self_parent[] = "/run/slurm-vgpu";
static const char self_dir[] = "/run/slurm-vgpu/self";
static const char self_pages[] = "/run/slurm-vgpu/self/pages";
static const char self_library[] = "/run/slurm-vgpu/self/libslurm-vgpu.so";
/* VGPU_DEV_DIR there. */
static const char dev_dir[] = "/dev/slurm-vgpu";
static const char preload_file[] = "/etc/ld.so.preload";

enum kind { FOLDER, ROOT_FILE, MOUNT_POINT_FILE, DEVICE };

/* Says what went wrong with which object, and with errno why. */
__attribute__((format(printf, 2, 3))) static int fail(char *why, const char *format, ...)
{
	int error = errno;
	va_list arguments;

	va_start(arguments, format);
	int n = vsnprintf(why, VGPU_REASON_BYTES, format, arguments);
	va_end(arguments);
	if (n >= 0 && n < VGPU_REASON_BYTES && error)
		snprintf(why + n, VGPU_REASON_BYTES - n, ": %s", strerror(error));
	return -1;
}

/* The fault of an object that root is about to mount, or NULL. */
static const char *distrust(const struct stat *st, enum kind kind)
{
	switch (kind) {
	case FOLDER:
		if (!S_ISDIR(st->st_mode))
			return "is not a folder";
		break;
	case ROOT_FILE:
	case MOUNT_POINT_FILE:
		if (!S_ISREG(st->st_mode))
			return "is not a regular file";
		break;
	case DEVICE:
		/* Anyone may write to a GPU's node. nodev would not mask a plain file. */
		return S_ISCHR(st->st_mode) ? NULL : "is not a character device";
	}
	if (st->st_uid != 0)
		return "is not owned by root";
	if (kind != MOUNT_POINT_FILE && (st->st_mode & (S_IWGRP | S_IWOTH)))
		return "can be written by others than root";
	return NULL;
}

/* Holds on to an object by a descriptor, so that what was checked is what gets mounted. A link at
 * the end of the path is not followed. Returns -1 with errno, which is 0 after a distrust. */
static int hold(const char *path, enum kind kind, char *why)
{
	struct stat st;
	int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return fail(why, "open %s", path);
	if (fstat(fd, &st) != 0) {
		fail(why, "stat %s", path);
		close(fd);
		return -1;
	}
	const char *wrong = S_ISLNK(st.st_mode) ? "is a symbolic link" : distrust(&st, kind);
	if (wrong) {
		close(fd);
		errno = 0;
		return fail(why, "%s %s", path, wrong);
	}
	return fd;
}

static void fd_path(char path[32], int fd)
{
	snprintf(path, 32, "/proc/self/fd/%d", fd);
}

/* Mounts source over target with the flags, with MS_REC and all that is mounted in it. Linux takes a bind
 * mount's flags only in a second step; until then the task does not run, so nobody can use the gap. */
static int bind_over(const char *source, enum kind source_kind, const char *target, enum kind target_kind,
		     unsigned long flags, char *why)
{
	char from[32], to[32];
	int source_fd = -1, target_fd = -1, top_fd = -1, rc = -1;

	source_fd = hold(source, source_kind, why);
	if (source_fd < 0)
		goto out;
	target_fd = hold(target, target_kind, why);
	if (target_fd < 0)
		goto out;
	fd_path(from, source_fd);
	fd_path(to, target_fd);
	if (mount(from, to, NULL, MS_BIND | (flags & MS_REC), NULL) != 0) {
		fail(why, "mount %s on %s", source, target);
		goto out;
	}
	/* target_fd is below the new mount: the flags belong to what is on top now. */
	top_fd = open(target, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	if (top_fd < 0) {
		fail(why, "open %s", target);
		goto out;
	}
	fd_path(to, top_fd);
	if (mount(NULL, to, NULL, MS_BIND | MS_REMOUNT | (flags & ~(unsigned long)MS_REC), NULL) != 0) {
		fail(why, "set mount flags of %s", target);
		goto out;
	}
	rc = 0;
out:
	if (top_fd >= 0)
		close(top_fd);
	if (target_fd >= 0)
		close(target_fd);
	if (source_fd >= 0)
		close(source_fd);
	return rc;
}

static int make_folder(const char *path, char *why)
{
	if (mkdir(path, 0755) != 0 && errno != EEXIST)
		return fail(why, "create %s", path);
	return 0;
}

/* vgpu-prolog creates both mount points, but may not have run in this image of /run or /etc. */
static int make_mount_points(char *why)
{
	mode_t before = umask(022); /* the job's own may hide them from the task */
	int rc = make_folder(self_parent, why);

	if (rc == 0)
		rc = make_folder(self_dir, why);
	if (rc == 0 && access(preload_file, F_OK) != 0) {
		int fd = open(preload_file, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
		if (fd >= 0)
			close(fd);
		else if (errno != EEXIST) /* another task was faster */
			rc = fail(why, "create %s", preload_file);
	}
	umask(before);
	return rc;
}

static int mask(const char *node, char *why)
{
	/* A GPU that fell off the bus has no node: nothing to hide. */
	if (access(node, F_OK) != 0 && errno == ENOENT)
		return 0;
	return bind_over(node, DEVICE, node, DEVICE, MS_NODEV | MS_NOSUID | MS_NOEXEC | MS_RDONLY, why);
}

/* A file of the same GPU that everybody may open, over one that only root may. */
static int put_own(const struct vgpu_own *own, char *why)
{
	struct stat file, node;

	if (lstat(own->file, &file) != 0)
		return fail(why, "stat %s", own->file);
	if (lstat(own->node, &node) != 0)
		return fail(why, "stat %s", own->node);
	if (file.st_rdev != node.st_rdev) {
		errno = 0;
		return fail(why, "%s is of another device than %s", own->file, own->node);
	}
	return bind_over(own->file, DEVICE, own->node, DEVICE, MS_NOSUID | MS_NOEXEC, why);
}

/* The call is in no header of glibc 2.28, and in no kernel before 5.2. */
#ifndef SYS_move_mount
#define SYS_move_mount 429
#endif
#ifndef MOVE_MOUNT_F_EMPTY_PATH
#define MOVE_MOUNT_F_EMPTY_PATH 4
#endif

/* Puts the job's pages, of which tree is a copy, where they are looked for. On an old kernel they are
 * those that were there when the namespace was cut off. */
static void put_pages(int tree, const struct vgpu_plan *plan)
{
	if (tree >= 0)
		syscall(SYS_move_mount, tree, "", AT_FDCWD, plan->pages_dir, MOVE_MOUNT_F_EMPTY_PATH);
}

/* Other jobs' pages were copied into this namespace, where they would be seen, and outlive their jobs. */
static int leave_others(const struct vgpu_plan *plan, char *why)
{
	while (umount2(plan->all_pages, MNT_DETACH | UMOUNT_NOFOLLOW) == 0)
		;
	return errno == EINVAL || errno == ENOENT ? 0 : fail(why, "leave %s", plan->all_pages);
}

/* The folder holds all that a process of the step needs, since in a container there may be nothing else.
 * What is mounted here can be mapped, unlike the folder around it. */
static int fill_folder(const struct vgpu_plan *plan, char why[VGPU_REASON_BYTES])
{
	const unsigned long flags = MS_NODEV | MS_NOSUID;

	/* Writable, because the ledger is the user's; the folder and the limits are root's. */
	if (bind_over(plan->step_dir, FOLDER, self_dir, FOLDER, flags | MS_NOEXEC, why) != 0)
		return -1;
	if (bind_over(plan->pages_dir, FOLDER, self_pages, FOLDER, flags | MS_NOEXEC, why) != 0)
		return -1;
	if (leave_others(plan, why) != 0)
		return -1;
	/* The step's figures of use are read there, by slurmstepd as well. */
	if (bind_over(self_pages, FOLDER, plan->pages_dir, FOLDER, flags | MS_NOEXEC, why) != 0)
		return -1;
	return bind_over(plan->library, ROOT_FILE, self_library, MOUNT_POINT_FILE, flags | MS_RDONLY, why);
}

/* The driver, by another name, comes into the step's folder, and our guards to where the driver was. */
static int mount_guards(const struct vgpu_plan *plan, char *why)
{
	/* No more than what they need: in a user namespace flags are locked, and runc 1.1 takes away
	 * those that a bundle does not name. */
	const unsigned long flags = MS_RDONLY;
	char behind[sizeof(self_dir) + sizeof(plan->guard[0].behind) + 1];

	for (uint32_t i = 0; i < plan->guard_count && i < VGPU_GUARD_COUNT; i++) {
		const struct vgpu_guard *guard = &plan->guard[i];

		snprintf(behind, sizeof(behind), "%s/%s", self_dir, guard->behind);
		if (guard->behind[0] &&
		    bind_over(guard->driver, ROOT_FILE, behind, MOUNT_POINT_FILE, flags, why) != 0)
			return -1;
		if (bind_over(guard->guard, ROOT_FILE, guard->driver, ROOT_FILE, flags, why) != 0)
			return -1;
	}
	return 0;
}

/* The folder with all that is in it also stands in /dev, which containers are given. Where it cannot, they
 * have no CUDA without being told to take the folder along. */
static void carry_folder(void)
{
	mode_t before = umask(022);
	char why[VGPU_REASON_BYTES], to[32];

	mkdir(dev_dir, 0755);
	umask(before);
	int fd = hold(dev_dir, FOLDER, why);
	if (fd < 0)
		return;
	fd_path(to, fd);
	mount(self_dir, to, NULL, MS_BIND | MS_REC, NULL);
	close(fd);
}

void vgpu_isolate_let_go(void)
{
	umount2(dev_dir, MNT_DETACH | UMOUNT_NOFOLLOW);
	umount2(self_dir, MNT_DETACH | UMOUNT_NOFOLLOW);
}

/* Mounts the files that load the library into the step's processes, and the files that it needs. Whole GPUs
 * have none of them. */
static int bring_library(const struct vgpu_plan *plan, char *why)
{
	if (fill_folder(plan, why) != 0)
		return -1;
	if (bind_over(plan->preload_file, ROOT_FILE, preload_file, MOUNT_POINT_FILE,
		      MS_RDONLY, why) != 0)
		return -1;
	if (mount_guards(plan, why) != 0)
		return -1;
	carry_folder();
	return 0;
}

int vgpu_isolate(const struct vgpu_plan *plan, int pages, char why[VGPU_REASON_BYTES])
{
	if (make_mount_points(why) != 0)
		return -1;
	if (unshare(CLONE_NEWNS) != 0)
		return fail(why, "make a mount namespace for the step");
	/* Slave: what the node mounts later still arrives, what is mounted here does not leave. */
	if (mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) != 0)
		return fail(why, "make the step's mounts its own");
	put_pages(pages, plan);
	vgpu_moved_prepare(plan);
	if (plan->library[0] ? bring_library(plan, why) != 0 : leave_others(plan, why) != 0)
		return -1;
	if (vgpu_podman_apart(plan->uid, plan->gid, why) != 0)
		return -1;
	for (uint32_t i = 0; i < plan->mask_count && i < VGPU_MASK_COUNT; i++)
		if (mask(plan->mask[i], why) != 0)
			return -1;
	for (uint32_t i = 0; i < plan->own_count && i < VGPU_MASK_COUNT; i++)
		if (put_own(&plan->own[i], why) != 0)
			return -1;
	return 0;
}

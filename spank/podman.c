/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "podman.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

/* Pids, sockets and exit codes of the step's containers. */
#define FOLDER_OPTIONS "size=64m,nr_inodes=16384,mode=0700,uid=%u,gid=%u"

static const char podman[] = "/usr/bin/podman";

/* Where Podman looks without XDG_RUNTIME_DIR; those in /tmp it makes itself where there is no other
 * (4: podman-run, 5: storage-run). */
static const char runtime_dir[] = "/run/user/%u";
static const char *const own_dirs[] = {"/tmp/podman-run-%u", "/tmp/storage-run-%u"};

/* Opens a folder of the user's, with the rights of his that this thread has now. */
static int open_his(int at, const char *name, uid_t uid, bool make)
{
	const int flags = O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
	int fd = openat(at, name, flags);
	struct stat st;

	if (fd < 0 && errno == ENOENT && make && (mkdirat(at, name, 0700) == 0 || errno == EEXIST))
		fd = openat(at, name, flags);
	if (fd >= 0 && (fstat(fd, &st) != 0 || st.st_uid != uid)) {
		close(fd);
		return -1;
	}
	return fd;
}

/* -1: there is none, or it is not his. Made by him if need be, since the folder around is his. */
static int open_libpod(const char *format, uid_t uid, gid_t gid, bool make)
{
	char path[64];
	int parent, fd = -1;

	snprintf(path, sizeof(path), format, (unsigned)uid);
	int gid_before = setfsgid(gid), uid_before = setfsuid(uid); /* which takes root's rights away */
	parent = open_his(AT_FDCWD, path, uid, make);
	if (parent >= 0) {
		fd = open_his(parent, "libpod", uid, true);
		close(parent);
	}
	setfsuid((uid_t)uid_before);
	setfsgid((gid_t)gid_before);
	return fd;
}

static int cover(int fd, uid_t uid, gid_t gid, char *why)
{
	char path[32], options[96];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	snprintf(options, sizeof(options), FOLDER_OPTIONS, (unsigned)uid, (unsigned)gid);
	int rc = mount("slurm-vgpu", path, "tmpfs", MS_NOSUID | MS_NODEV, options);
	if (rc != 0)
		snprintf(why, VGPU_REASON_BYTES, "mount a folder of the step's own for Podman: %s",
			 strerror(errno));
	close(fd);
	return rc;
}

int vgpu_podman_apart(uid_t uid, gid_t gid, char why[VGPU_REASON_BYTES])
{
	int fd, rc = 0;

	if (uid == 0) /* his needs no namespace */
		return 0;
	mode_t before = umask(077);
	fd = open_libpod(runtime_dir, uid, gid, false);
	bool make = fd < 0 && access(podman, X_OK) == 0;
	if (fd >= 0)
		rc = cover(fd, uid, gid, why);
	for (size_t i = 0; rc == 0 && i < sizeof(own_dirs) / sizeof(own_dirs[0]); i++) {
		fd = open_libpod(own_dirs[i], uid, gid, make);
		if (fd >= 0)
			rc = cover(fd, uid, gid, why);
	}
	umask(before);
	return rc;
}

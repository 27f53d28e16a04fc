/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/turns_dir.h"

#include "base/sys.h"
#include "process/process.h"

#include <stdio.h>
#include <string.h>

#define FOREIGN_WRITE 022

struct vgpu_turns_path vgpu_turns_path(const char *name)
{
	const char *dir = vgpu_pages.turns_dir;
	struct vgpu_turns_path path = {""};

	if (dir[0] == '/' && strnlen(dir, VGPU_TURNS_DIR_BYTES) < VGPU_TURNS_DIR_BYTES)
		snprintf(path.text, sizeof(path.text), "%s/%s", dir, name);
	return path;
}

struct vgpu_turns_path vgpu_turns_own(const char *format)
{
	char name[32];

	snprintf(name, sizeof(name), format, vgpu_pages.limits->job_id);
	return vgpu_turns_path(name);
}

bool vgpu_turns_is_owners_alone(const struct stat *st)
{
	return S_ISREG(st->st_mode) && !(st->st_mode & FOREIGN_WRITE);
}

/* Not by open and close, in which a thread can be cancelled: the driver's may come here. */
int vgpu_turns_open(const struct vgpu_turns_path *path, int flags, struct stat *st)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path->text, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && (vgpu_fstat(fd, st) != 0 || !vgpu_turns_is_owners_alone(st))) {
		syscall(SYS_close, fd);
		return -1;
	}
	return fd;
}

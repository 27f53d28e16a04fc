/* SPDX-FileCopyrightText: The slurm-vgpu authors
 * SPDX-License-Identifier: Apache-2.0 */
#include "process/pages_dir.h"

#include "base/sys.h"
#include "process/process.h"

#include <stdio.h>
#include <string.h>

#define FOREIGN_WRITE 022

struct vgpu_pages_path vgpu_pages_path(const char *name)
{
	const char *dir = vgpu_pages.pages_dir;
	struct vgpu_pages_path path = {""};

	if (dir[0] == '/' && strnlen(dir, VGPU_PAGES_DIR_BYTES) < VGPU_PAGES_DIR_BYTES)
		snprintf(path.text, sizeof(path.text), "%s/%s", dir, name);
	return path;
}

bool vgpu_pages_is_owners_alone(const struct stat *st)
{
	return S_ISREG(st->st_mode) && !(st->st_mode & FOREIGN_WRITE);
}

/* Not by open and close, in which a thread can be cancelled: the driver's may come here. */
int vgpu_pages_open(const struct vgpu_pages_path *path, int flags, struct stat *st)
{
	int fd = (int)syscall(SYS_openat, AT_FDCWD, path->text, flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (fd >= 0 && (vgpu_fstat(fd, st) != 0 || !vgpu_pages_is_owners_alone(st))) {
		syscall(SYS_close, fd);
		return -1;
	}
	return fd;
}
